/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints of our own, under events/tidepool: what became of each page. They
 * cost a jump that is not taken while nobody looks.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tidepool

#if !defined(TIDE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TIDE_TRACE_H

#include <linux/types.h>
#include <linux/kdev_t.h>
#include <linux/tracepoint.h>

#include "base/outcome.h"
#include "uapi/wire.h"

#define TIDE_SHOW_GOT(how)						\
	__print_symbolic(how,						\
			 { TIDE_GOT_HIT,	"hit" },		\
			 { TIDE_GOT_BUFFER,	"buffer" },		\
			 { TIDE_GOT_MISS,	"miss" },		\
			 { TIDE_GOT_LATE,	"late" },		\
			 { TIDE_GOT_ERROR,	"error" },		\
			 { TIDE_GOT_CORRUPT,	"corrupt" },		\
			 { TIDE_GOT_INCOMPLETE,	"incomplete" })

#define TIDE_SHOW_DROP(reason)						\
	__print_symbolic(reason,					\
			 { TIDE_DROP_GATE,	"gate" },		\
			 { TIDE_DROP_NOTREADY,	"notready" },		\
			 { TIDE_DROP_NOFILE,	"nofile" },		\
			 { TIDE_DROP_NOBUFFER,	"nobuffer" },		\
			 { TIDE_DROP_REFUSED,	"refused" },		\
			 { TIDE_DROP_NOMEM,	"nomem" },		\
			 { TIDE_DROP_STALE,	"stale" },		\
			 { TIDE_DROP_LOST,	"lost" },		\
			 { TIDE_DROP_BREAKER,	"breaker" },		\
			 { TIDE_DROP_SEQUENTIAL, "sequential" },	\
			 { TIDE_DROP_HELD,	"held" })

/* A read of pages that the pool was believed to have, and how it ended. */
TRACE_EVENT(tidepool_get,
	TP_PROTO(dev_t dev, u64 ino, pgoff_t index, unsigned int pages,
		 const char *lender, enum tide_got how, s64 us),
	TP_ARGS(dev, ino, index, pages, lender, how, us),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, ino)
		__field(u64, index)
		__field(unsigned int, pages)
		__field(int, how)
		__field(s64, us)
		__array(char, lender, TIDE_NAME_MAX)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->ino = ino;
		__entry->index = index;
		__entry->pages = pages;
		__entry->how = how;
		__entry->us = us;
		memcpy(__entry->lender, lender, TIDE_NAME_MAX);
	),
	TP_printk("dev=%u:%u ino=%llu index=%llu pages=%u lender=%s how=%s us=%lld",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino,
		  __entry->index, __entry->pages, __entry->lender,
		  TIDE_SHOW_GOT(__entry->how), __entry->us)
);

/* An evicted page was copied and is on its way to a lender. */
TRACE_EVENT(tidepool_put,
	TP_PROTO(dev_t dev, u64 ino, pgoff_t index, u64 version, const char *lender),
	TP_ARGS(dev, ino, index, version, lender),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, ino)
		__field(u64, index)
		__field(u64, version)
		__array(char, lender, TIDE_NAME_MAX)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->ino = ino;
		__entry->index = index;
		__entry->version = version;
		memcpy(__entry->lender, lender, TIDE_NAME_MAX);
	),
	TP_printk("dev=%u:%u ino=%llu index=%llu version=%llu lender=%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino,
		  __entry->index, __entry->version, __entry->lender)
);

/* Evicted pages that do not go to the pool, or did not get there, and why. */
TRACE_EVENT(tidepool_drop,
	TP_PROTO(dev_t dev, unsigned long ino, pgoff_t index, unsigned long pages,
		 enum tide_drop_reason reason),
	TP_ARGS(dev, ino, index, pages, reason),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, ino)
		__field(u64, index)
		__field(u64, pages)
		__field(int, reason)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->ino = ino;
		__entry->index = index;
		__entry->pages = pages;
		__entry->reason = reason;
	),
	TP_printk("dev=%u:%u ino=%llu index=%llu pages=%llu reason=%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino,
		  __entry->index, __entry->pages,
		  TIDE_SHOW_DROP(__entry->reason))
);

/* The breaker of a lender stops or resumes; averages in microseconds. */
TRACE_EVENT(tidepool_breaker,
	TP_PROTO(const char *lender, bool large, bool stopped,
		 u64 short_us, u64 long_us),
	TP_ARGS(lender, large, stopped, short_us, long_us),
	TP_STRUCT__entry(
		__field(bool, large)
		__field(bool, stopped)
		__field(u64, short_us)
		__field(u64, long_us)
		__array(char, lender, TIDE_NAME_MAX)
	),
	TP_fast_assign(
		__entry->large = large;
		__entry->stopped = stopped;
		__entry->short_us = short_us;
		__entry->long_us = long_us;
		memcpy(__entry->lender, lender, TIDE_NAME_MAX);
	),
	TP_printk("lender=%s %s reads %s short_us=%llu long_us=%llu",
		  __entry->lender, __entry->large ? "large" : "small",
		  __entry->stopped ? "stopped" : "resumed", __entry->short_us,
		  __entry->long_us)
);

#endif /* TIDE_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH base
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
