// SPDX-License-Identifier: GPL-2.0-only
/* 6.7, "mm: shrinker: add infrastructure for dynamically allocating shrinker" */
#include <linux/mm.h>
#include <linux/shrinker.h>

int probe(struct shrinker *shrinker, const char *name)
{
#ifdef TIDE_NEWER
	shrinker_free(shrinker);
	shrinker = shrinker_alloc(0, "%s", name);
	shrinker_register(shrinker);
	return 0;
#else
	unregister_shrinker(shrinker);
	return register_shrinker(shrinker, "%s", name);
#endif
}
