// SPDX-License-Identifier: GPL-2.0-only
/* 6.2, "ftrace: abstract DYNAMIC_FTRACE_WITH_ARGS accesses" */
#include <linux/ftrace.h>

unsigned long probe(struct ftrace_regs *fregs, unsigned long to)
{
#ifdef TIDE_NEWER
	ftrace_regs_set_instruction_pointer(fregs, to);
	return ftrace_regs_get_argument(fregs, 0);
#else
	ftrace_instruction_pointer_set(fregs, to);
	return regs_get_kernel_argument(&fregs->regs, 0);
#endif
}
