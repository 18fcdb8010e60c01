// SPDX-License-Identifier: GPL-2.0-only
/* 6.2, "random: handle archrandom with multiple longs" */
#include <linux/random.h>
#include <asm/archrandom.h>

bool probe(unsigned long *word)
{
#ifdef TIDE_NEWER
	return arch_get_random_longs(word, 1);
#else
	return arch_get_random_long(word);
#endif
}
