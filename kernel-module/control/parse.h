/* SPDX-License-Identifier: GPL-2.0-only */
/* Values that user space writes: one at a time, checked, explained when refused: parse.c. */
#ifndef TIDE_PARSE_H
#define TIDE_PARSE_H

#include <linux/kernel.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/socket.h>
#include <linux/types.h>

#include "base/identity.h"
#include "borrower/breaker_state.h"
#include "uapi/wire.h"

#define TIDE_MAX_THRESHOLD_US	(60U * 1000 * 1000)

extern struct mutex tide_control_mutex;		/* orders all writers */

/* A directory's name for the log */
#define TIDE_WHO_SIZE	(TIDE_NAME_MAX + 12)

static inline void tide_who(char *who, size_t size, const char *kind, const char *name)
{
	snprintf(who, size, "%s/%s", kind, name);
}

/* Logs why a value is refused. */
#define tide_refuse(err, who, attr, fmt, ...)				\
	({								\
		pr_err_ratelimited("%s: " attr ": " fmt "\n", who, ##__VA_ARGS__); \
		(err);							\
	})

/* 0, or -EINVAL with a log line that says what would be right */
int tide_parse_bytes(const char *who, const char *attr, const char *page,
		     u64 min, u64 *bytes);
int tide_parse_port(const char *who, const char *page, u16 *port);
int tide_parse_identity(const char *who, const char *page, size_t count,
			struct tide_identity *identity);
int tide_parse_address(const char *who, const char *page, size_t count,
		       struct sockaddr_storage *address);
bool tide_name_ok(const char *name);
int tide_parse_name(const char *who, const char *attr, const char *page,
		    const char * const *names, unsigned int n, unsigned int *which);
int tide_parse_thresholds(const char *who, const char *attr, const char *page,
			  struct tide_thresholds *thresholds);
int tide_parse_bool(const char *who, const char *attr, const char *page, bool *on);
int tide_parse_deadline(const char *who, const char *page, u32 *deadline_us);

#endif /* TIDE_PARSE_H */
