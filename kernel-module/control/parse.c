// SPDX-License-Identifier: GPL-2.0-only
/*
 * Values as user space writes them. @who is the directory, for the log line
 * that explains a refusal.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ctype.h>
#include <linux/inet.h>
#include <linux/kernel.h>
#include <linux/string.h>
#include <net/net_namespace.h>

#include "base/identity.h"
#include "base/limits.h"
#include "borrower/breaker_state.h"
#include "control/parse.h"
#include "uapi/wire.h"

DEFINE_MUTEX(tide_control_mutex);	/* orders all writers */

int tide_parse_bytes(const char *who, const char *attr, const char *page,
		     u64 min, u64 *bytes)
{
	u64 value;

	if (kstrtou64(page, 0, &value) || value > TIDE_MAX_BYTES ||
	    value < min) {
		pr_err_ratelimited("%s: %s: must be a number of bytes from %llu to %llu\n",
				   who, attr, min, TIDE_MAX_BYTES);
		return -EINVAL;
	}
	*bytes = value & PAGE_MASK;
	return 0;
}

int tide_parse_port(const char *who, const char *page, u16 *port)
{
	u16 value;

	if (kstrtou16(page, 0, &value) || !value)
		return tide_refuse(-EINVAL, who, "port", "must be a number from 1 to 65535");
	*port = value;
	return 0;
}

int tide_parse_identity(const char *who, const char *page, size_t count,
			struct tide_identity *identity)
{
	const char *refused = tide_identity_parse(page, count, identity);

	return refused ? tide_refuse(-EINVAL, who, "identity", "%s", refused) : 0;
}

int tide_parse_address(const char *who, const char *page, size_t count,
		       struct sockaddr_storage *address)
{
	struct sockaddr_storage parsed = { };
	char text[64];

	strscpy(text, page, sizeof(text));
	if (inet_pton_with_scope(&init_net, AF_UNSPEC, strim(text), NULL, &parsed))
		return tide_refuse(-EINVAL, who, "address",
				   "must be an IPv4 or IPv6 address, not a name");
	*address = parsed;
	return 0;
}

bool tide_name_ok(const char *name)
{
	const char *c;

	if (!*name || strlen(name) >= TIDE_NAME_MAX)
		return false;
	for (c = name; *c; c++)
		if (!isalnum(*c) && !strchr("._-", *c))
			return false;
	return true;
}

/* One of @n names; @which becomes its place among them. */
int tide_parse_name(const char *who, const char *attr, const char *page,
		    const char * const *names, unsigned int n, unsigned int *which)
{
	int i, found = __sysfs_match_string(names, n, page);
	char list[64] = "";

	if (found >= 0) {
		*which = found;
		return 0;
	}
	for (i = 0; i < n; i++) {
		if (i)
			strlcat(list, i + 1 < n ? ", " : " or ", sizeof(list));
		strlcat(list, names[i], sizeof(list));
	}
	pr_err_ratelimited("%s: %s: must be %s\n", who, attr, list);
	return -EINVAL;
}

int tide_parse_deadline(const char *who, const char *page, u32 *deadline_us)
{
	u32 value;

	if (kstrtou32(page, 0, &value) || value < USEC_PER_MSEC ||
	    value > 60 * USEC_PER_SEC)
		return tide_refuse(-EINVAL, who, "deadline_us",
				   "must be a number of microseconds from 1000 to 60000000");
	*deadline_us = value;
	return 0;
}

/* Both numbers in one value, so that no order of writes is ever wrong. */
int tide_parse_thresholds(const char *who, const char *attr, const char *page,
			  struct tide_thresholds *thresholds)
{
	unsigned long long resume, stop;
	char rest;

	if (sscanf(page, "%llu %llu %c", &resume, &stop, &rest) != 2 ||
	    !resume || resume >= stop || stop > TIDE_MAX_THRESHOLD_US) {
		pr_err_ratelimited("%s: %s: must be two numbers of microseconds from 1 to %u, to resume below and to stop at, the first one smaller\n",
				   who, attr, TIDE_MAX_THRESHOLD_US);
		return -EINVAL;
	}
	*thresholds = (struct tide_thresholds) {
		.resume_us = resume, .stop_us = stop,
	};
	return 0;
}

int tide_parse_bool(const char *who, const char *attr, const char *page, bool *on)
{
	if (kstrtobool(page, on)) {
		pr_err_ratelimited("%s: %s: must be 0 or 1\n", who, attr);
		return -EINVAL;
	}
	return 0;
}
