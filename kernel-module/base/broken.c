// SPDX-License-Identifier: GPL-2.0-only
/* Which mechanisms are broken: only in the build for tests that may break them. */
#include <linux/export.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

#include "base/broken.h"

static char *tide_broken_names = "";
module_param_named(broken, tide_broken_names, charp, 0444);

/**
 * tide_is_broken() - is a mechanism to be left out?
 * @what: its name
 *
 * Context: any.
 */
bool tide_is_broken(const char *what)
{
	const char *name, *end;
	size_t size = strlen(what);

	for (name = tide_broken_names; *name; name = *end ? end + 1 : end) {
		end = strchrnul(name, ',');
		if (end - name == size && !memcmp(name, what, size))
			return true;
	}
	return false;
}
EXPORT_SYMBOL_GPL(tide_is_broken);
