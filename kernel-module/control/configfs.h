/* SPDX-License-Identifier: GPL-2.0-only */
/* Values that user space writes: checked here, explained when refused. */
#ifndef TIDE_CONTROL_H
#define TIDE_CONTROL_H

#include <linux/configfs.h>
#include <linux/kernel.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/ratelimit.h>
#include <linux/socket.h>
#include <linux/sysfs.h>
#include <linux/types.h>

#include "base/identity.h"
#include "borrower/breaker.h"
#include "uapi/wire.h"

#define TIDE_MAX_THRESHOLD_US	(60U * 1000 * 1000)

extern struct mutex tide_control_mutex;		/* orders all writers */

int tide_control_init(void);
void tide_control_exit(void);

extern const struct config_item_type tide_lenders_type, tide_borrowers_type;

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

/* An identity, or an empty line while there is none. */
static inline ssize_t tide_show_identity(const struct tide_identity *identity, bool set, char *page)
{
	char text[TIDE_IDENTITY_TEXT] = "";

	if (set)
		tide_identity_print(identity, text);
	return sysfs_emit(page, "%s\n", text);
}

/* selftest.c */
int tide_parts_test_init(void);

/* parse.c: 0, or -EINVAL with a log line that says what would be right */
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

#endif /* TIDE_CONTROL_H */
