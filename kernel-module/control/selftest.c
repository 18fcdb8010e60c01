// SPDX-License-Identifier: GPL-2.0-only
/*
 * With selftest=1: parsing, versions, ages, pages and objects of the catalog, the
 * splitting of windows, the joining of ranges, and the curve of ghost mode compute on
 * this kernel what they should. Before anything is hooked, and with a lender that nobody
 * can reach. (What the handshake computes is told in base/selftest.c.)
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "base/identity.h"
#include "base/missratio.h"
#include "base/selftest.h"
#include "borrower/catalog_ages.h"
#include "borrower/catalog_pages.h"
#include "borrower/catalog_table.h"
#include "borrower/object.h"
#include "borrower/peer.h"
#include "borrower/versions.h"
#include "control/parse.h"
#include "control/selftest.h"
#include "lender/unwanted.h"
#include "pagecache/split.h"
#include "uapi/wire.h"

#define TIDE_TEST_PAGES		1024
#define TIDE_TEST_FAR		((pgoff_t)1 << 40)
#define TIDE_TEST_OBJECTS	20000	/* of which the smallest table has a twentieth */

static unsigned int tide_test_failures __initdata;

static void __init tide_test_failed(const char *what, int line)
{
	pr_err("self-test: line %d: not %s\n", line, what);
	tide_test_failures++;
}

#define tide_expect(what)						\
	do {								\
		if (!(what))						\
			tide_test_failed(#what, __LINE__);		\
	} while (0)

/* ------------------------------------------------------------------ */
/* parsing							       */
/* ------------------------------------------------------------------ */

static int __init tide_test_numbers(struct tide_lender *lender)
{
	struct tide_thresholds pair;
	u32 deadline;
	u64 bytes;
	u16 port;

	tide_expect(!tide_parse_bytes("test", "test", "4097\n", 0, &bytes) && bytes == PAGE_SIZE);
	tide_expect(!tide_parse_bytes("test", "test", "0x2000", 1, &bytes) && bytes == 8192);
	tide_expect(tide_parse_bytes("test", "test", "4095", 4096, &bytes) && bytes == 8192);
	tide_expect(tide_parse_bytes("test", "test", "-1", 0, &bytes));
	tide_expect(tide_parse_bytes("test", "test", "1 2", 0, &bytes));
	tide_expect(tide_parse_bytes("test", "test", "18446744073709551615", 0, &bytes));
	tide_expect(!tide_parse_port("test", "65535", &port) && port == 65535);
	tide_expect(tide_parse_port("test", "65536", &port) && tide_parse_port("test", "0", &port));
	tide_expect(!tide_parse_deadline("test", "1000", &deadline) && deadline == 1000);
	tide_expect(tide_parse_deadline("test", "999", &deadline));
	tide_expect(!tide_parse_thresholds("test", "test", "1 2\n", &pair) && pair.stop_us == 2);
	tide_expect(tide_parse_thresholds("test", "test", "2 2", &pair));
	tide_expect(tide_parse_thresholds("test", "test", "1 2 3", &pair));
	return 0;
}

static int __init tide_test_names(struct tide_lender *lender)
{
	tide_expect(tide_name_ok("a-Z.0_9"));
	tide_expect(!tide_name_ok("") && !tide_name_ok("a/b") && !tide_name_ok("a b"));
	return 0;
}

static int __init tide_test_identities(struct tide_lender *lender)
{
	char text[TIDE_IDENTITY_TEXT];
	struct tide_identity one, other;
	struct tide_keypair pair;

	if (tide_keypair_draw(&pair))
		return -ENOMEM;
	memcpy(one.point, pair.point, sizeof(one.point));
	tide_identity_print(&one, text);
	tide_expect(!tide_identity_parse(text, strlen(text), &other));
	tide_expect(tide_identity_is(&one, &other));
	tide_expect(tide_identity_parse(text, strlen(text) - 1, &other));
	text[strlen(text) - 1] = 'g';
	tide_expect(tide_identity_parse(text, strlen(text), &other));
	tide_identity_own(&one);
	tide_identity_print(&one, text);
	tide_expect(tide_identity_parse(text, strlen(text), &other));
	return 0;
}

/* ------------------------------------------------------------------ */
/* the catalog							       */
/* ------------------------------------------------------------------ */

static int __init tide_test_versions(struct tide_lender *lender)
{
	u64 before = tide_next_version();
	unsigned int i;

	for (i = 0; i < TIDE_TEST_PAGES; i++) {
		u64 version = tide_next_version();

		tide_expect(version > before && tide_newest_version() == version);
		before = version;
	}
	return 0;
}

/* A lender is believed what it granted and a little more, the newest; see catalog_ages.c. */
static int __init tide_test_ages(struct tide_lender *lender)
{
	u64 version, border = TIDE_TEST_PAGES * 3 / 4;

	lender->granted_pages = TIDE_TEST_PAGES / 2;
	for (version = 1; version <= TIDE_TEST_PAGES; version++)
		tide_ages_enter(lender, version);
	tide_expect(atomic64_read(&lender->catalog_pages) >= TIDE_TEST_PAGES / 2);
	tide_expect(atomic64_read(&lender->catalog_pages) <= TIDE_TEST_PAGES * 3 / 4);
	tide_expect(tide_ages_forgot(&lender->ages, 1));
	tide_expect(!tide_ages_forgot(&lender->ages, TIDE_TEST_PAGES));
	tide_expect(tide_ages_before(lender, border));
	tide_ages_forget_before(lender, border);
	tide_expect(tide_ages_forgot(&lender->ages, border - 1));
	tide_expect(!tide_ages_forgot(&lender->ages, TIDE_TEST_PAGES));
	tide_expect(!tide_ages_before(lender, border));
	for (version = 1; version <= TIDE_TEST_PAGES; version++)
		tide_ages_leave(lender, version);
	tide_expect(!atomic64_read(&lender->catalog_pages) &&
		    !tide_ages_forgotten(&lender->ages));
	return 0;
}

static bool __init tide_test_still(void *still)
{
	return *(bool *)still;
}

static u64 __init tide_test_version_of(struct tide_object *object, pgoff_t index)
{
	unsigned long flags;
	u64 version;
	int slot;

	tide_object_lock(object, flags);
	version = tide_object_version(object, index, &slot);
	tide_object_unlock(object, flags);
	return version;
}

static int __init tide_test_record(struct tide_object *object, pgoff_t index, u64 version)
{
	bool still = true;

	return tide_object_record(object, index, version, 0, tide_test_still, &still);
}

/* Pages side by side, at the border of a leaf, and far away; each of its own version. */
static int __init tide_test_object(struct tide_object *object)
{
	u64 first = tide_next_version() + TIDE_TEST_PAGES;
	bool still = false;
	pgoff_t i;

	tide_expect(tide_object_record(object, 1, first, 0, tide_test_still, &still) == -ESTALE);
	tide_expect(!tide_object_has(object, 0, ULONG_MAX));
	for (i = 0; i < TIDE_TEST_PAGES; i++)
		tide_expect(!tide_test_record(object, i, first + 1 + i));
	tide_expect(!tide_test_record(object, TIDE_TEST_FAR, first));
	tide_expect(tide_test_version_of(object, 0) == first + 1);
	tide_expect(tide_test_version_of(object, TIDE_TEST_PAGES - 1) == first + TIDE_TEST_PAGES);
	tide_expect(!tide_test_version_of(object, TIDE_TEST_PAGES));
	tide_expect(tide_object_has(object, TIDE_TEST_FAR, TIDE_TEST_FAR));

	tide_object_erase(object, 5, first);	/* another version: nothing happens */
	tide_expect(tide_test_version_of(object, 5) == first + 6);
	tide_object_erase(object, 5, first + 6);
	tide_expect(!tide_test_version_of(object, 5));
	tide_object_evicted(object, 6, first + 7, 1);	/* another lender: likewise */
	tide_expect(tide_test_version_of(object, 6) == first + 7);

	tide_object_drop(object, 100, 299);
	tide_expect(tide_test_version_of(object, 99) && tide_test_version_of(object, 300));
	tide_expect(!tide_test_version_of(object, 100) && !tide_test_version_of(object, 299));
	return 0;
}

static void __init tide_test_keep(struct tide_object *object)
{
}

static int __init tide_test_pages(struct tide_lender *lender)
{
	u64 all[TIDE_MAX_LENDERS] = { U64_MAX };
	struct tide_object object = { };
	int err;

	tide_object_init(&object, tide_test_keep);
	object.kept = true;
	lender->granted_pages = 2 * TIDE_TEST_PAGES;
	rcu_assign_pointer(tide_lenders[0], lender);
	err = tide_test_object(&object);
	tide_object_purge(&object, all);
	RCU_INIT_POINTER(tide_lenders[0], NULL);
	synchronize_rcu();
	if (err)
		return err;
	tide_expect(xa_empty(&object.pages) && !atomic64_read(&lender->catalog_pages));
	return 0;
}

/* ------------------------------------------------------------------ */
/* objects							       */
/* ------------------------------------------------------------------ */

static bool __init tide_test_is(const struct tide_object *object, const void *what)
{
	return object == what;
}

/* Bits of the table once it has come to rest. */
static unsigned int __init tide_test_table_bits(void)
{
	flush_workqueue(tide_catalog_queue);
	return rcu_dereference_protected(tide_table, true)->bits;
}

static void __init tide_test_object_enter(struct tide_object *object, u64 key)
{
	tide_object_init(object, tide_test_keep);
	object->key = key;
	object->kept = true;
	refcount_set(&object->refs, 2);		/* the table's, the test's */
	tide_expect(!tide_table_insert(object, tide_test_is, object));
}

static bool __init tide_test_object_found(struct tide_object *object)
{
	struct tide_object *by_key = tide_table_find(object->key, tide_test_is, object);
	struct tide_object *by_id = tide_table_find_id(object->id);
	bool found = by_key == object && by_id == object;

	if (by_key)
		tide_object_put(by_key);
	if (by_id)
		tide_object_put(by_id);
	return found;
}

static void __init tide_test_object_leave(struct tide_object *object)
{
	unsigned long flags;

	tide_object_lock(object, flags);
	tide_object_end(object);
	tide_object_unlock(object, flags);
	tide_object_forget(object);
	tide_object_put(object);
}

static void __init tide_test_count(struct tide_object *object, void *count)
{
	++*(unsigned int *)count;
}

/* Two of each key: the table is as large as they need, and has them all, then none. */
static void __init tide_test_objects(struct tide_object *object)
{
	unsigned int i, before = tide_catalog_objects(), found = 0, visited = 0;
	unsigned int least = tide_test_table_bits();

	for (i = 0; i < TIDE_TEST_OBJECTS; i++)
		tide_test_object_enter(&object[i], i / 2);
	tide_expect(tide_catalog_objects() == before + TIDE_TEST_OBJECTS);
	tide_expect(tide_test_table_bits() == fls(TIDE_TEST_OBJECTS));
	for (i = 0; i < TIDE_TEST_OBJECTS; i++)
		found += tide_test_object_found(&object[i]);
	tide_expect(found == TIDE_TEST_OBJECTS);
	tide_table_for_each(NULL, tide_test_count, &visited);
	tide_expect(visited == before + TIDE_TEST_OBJECTS);
	for (i = 0; i < TIDE_TEST_OBJECTS; i++)
		tide_test_object_leave(&object[i]);
	tide_expect(tide_catalog_objects() == before && tide_test_table_bits() == least);
	tide_expect(!tide_table_find(0, tide_test_is, &object[0]));
}

static int __init tide_test_table(struct tide_lender *lender)
{
	struct tide_object *objects = kvcalloc(TIDE_TEST_OBJECTS, sizeof(*objects), GFP_KERNEL);

	if (!objects)
		return -ENOMEM;
	tide_test_objects(objects);
	rcu_barrier();		/* nobody looks at them any more */
	kvfree(objects);
	return 0;
}

/* ------------------------------------------------------------------ */
/* windows							       */
/* ------------------------------------------------------------------ */

static void __init tide_test_wheres(void)
{
	tide_expect(tide_split_where(TIDE_BUFFERED, TIDE_BUFFERED) == TIDE_BUFFERED);
	tide_expect(tide_split_where(TIDE_BUFFERED, 1) == 1 && tide_split_where(1, 1) == 1);
	tide_expect(tide_split_where(1, TIDE_BUFFERED) == 1);
	tide_expect(tide_split_where(1, 2) == TIDE_NOWHERE);
	tide_expect(tide_split_where(1, TIDE_NOWHERE) == TIDE_NOWHERE);
	tide_expect(tide_split_where(TIDE_BUFFERED, TIDE_NOWHERE) == TIDE_NOWHERE);
	tide_expect(tide_split_where(TIDE_NOWHERE, TIDE_BUFFERED) == TIDE_NOWHERE);
}

/* A folio of a window, and what is to become of it. */
struct tide_test_folio {
	int where;
	unsigned int nr;
	enum tide_part part;
	unsigned long misses;	/* before it, if it is taken */
};

#define TIDE_TEST_HALF	(TIDE_GET_MAX / 2)

/* Two lenders by turns, a gap, more of one lender than a request takes, a gap at the end. */
static const struct tide_test_folio tide_test_window[] __initconst = {
	{ TIDE_NOWHERE, 3, TIDE_PART_DISK },
	{ 0, TIDE_TEST_HALF, TIDE_PART_JOIN, 3 },
	{ 1, 1, TIDE_PART_JOIN },
	{ TIDE_NOWHERE, 1, TIDE_PART_DISK },
	{ TIDE_NOWHERE, 4, TIDE_PART_DISK },
	{ 0, TIDE_TEST_HALF, TIDE_PART_JOIN, 5 },
	{ TIDE_BUFFERED, TIDE_GET_MAX, TIDE_PART_COPY },
	{ 1, TIDE_GET_MAX - 1, TIDE_PART_JOIN },
	{ 0, 1, TIDE_PART_NEXT },
	{ 0, TIDE_GET_MAX - 1, TIDE_PART_JOIN },
	{ 1, 2, TIDE_PART_NEXT },
	{ TIDE_NOWHERE, 2, TIDE_PART_DISK },
	{ TIDE_BUFFERED, 1, TIDE_PART_COPY, 2 },
	{ TIDE_NOWHERE, 7, TIDE_PART_DISK },
};

/* As pagecache/readahead.c goes by it. */
static unsigned long __init tide_test_split(struct tide_split *split,
					    const struct tide_test_folio *folio)
{
	enum tide_part part = tide_split_part(split, folio->where, folio->nr,
					      TIDE_GET_MAX);

	tide_expect(part == folio->part);
	if (part == TIDE_PART_NEXT)
		tide_split_sent(split, folio->where);
	if (part != TIDE_PART_DISK)
		return tide_split_taken(split, folio->where, folio->nr);
	tide_split_missed(split, folio->nr);
	return 0;
}

static int __init tide_test_windows(struct tide_lender *lender)
{
	struct tide_split split = { };
	unsigned int i;

	tide_test_wheres();
	for (i = 0; i < ARRAY_SIZE(tide_test_window); i++)
		tide_expect(tide_test_split(&split, &tide_test_window[i]) ==
			    tide_test_window[i].misses);
	tide_expect(split.misses == 7);
	tide_expect(tide_split_part(&split, 1, 4, 3) == TIDE_PART_DISK);
	tide_expect(tide_split_part(&split, 1, 3, 3) == TIDE_PART_NEXT);
	tide_expect(split.open[0] == TIDE_GET_MAX && split.open[1] == 2);
	return 0;
}

/* ------------------------------------------------------------------ */
/* ranges that a borrower has no use for			       */
/* ------------------------------------------------------------------ */

#define TIDE_TEST_RANGE(f, from, to, below)				\
	{ cpu_to_le64(f), cpu_to_le64(from), cpu_to_le64(to), cpu_to_le64(below) }

static const struct tide_forget_item tide_test_items[] __initconst = {
	TIDE_TEST_RANGE(7, 0, 9, 50),
	TIDE_TEST_RANGE(7, 10, 10, 40),
	TIDE_TEST_RANGE(7, 11, 20, 60),
	TIDE_TEST_RANGE(8, 21, 30, 60),		/* of another file */
	TIDE_TEST_RANGE(8, 32, U64_MAX, 60),	/* with a gap before it */
	TIDE_TEST_RANGE(8, 0, 9, 60),		/* behind the last page there is */
};

static int __init tide_test_ranges(struct tide_lender *lender)
{
	const struct tide_forget_item *item = tide_test_items;
	const struct tide_forget_item first = TIDE_TEST_RANGE(7, 0, 20, 40);
	unsigned int i, count = ARRAY_SIZE(tide_test_items);
	struct tide_forget_item all;

	tide_expect(tide_unwanted_join(item, count, &all) == 3);
	tide_expect(!memcmp(&all, &first, sizeof(all)));
	tide_expect(tide_unwanted_join(item, 2, &all) == 2);
	for (i = 3; i < count; i++)
		tide_expect(tide_unwanted_join(&item[i], count - i, &all) == 1);
	return 0;
}

/* ------------------------------------------------------------------ */
/* ghost mode's curve						       */
/* ------------------------------------------------------------------ */

/* Twice a range of half the memory: what a pool of that size and larger ones would have. */
static int __init tide_test_curve_of(struct tide_curve *curve)
{
	unsigned int size, round;
	u64 i;

	tide_curve_init(curve, 2 * TIDE_TEST_PAGES, false);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < TIDE_TEST_PAGES; i++) {
			if (!tide_curve_follows(curve->threshold, 1, i))
				continue;
			tide_curve_get(curve, 1, i);
			tide_curve_put(curve, 1, 1, i);
		}
	}
	for (size = 1; size < TIDE_CURVE_SIZES; size++)
		tide_expect(tide_curve_ratio(curve, size) >= tide_curve_ratio(curve, size - 1));
	tide_expect(tide_curve_ratio(curve, TIDE_CURVE_SIZES - 1) > 0);
	tide_curve_drop_range(curve, 1, 0, U64_MAX);
	tide_expect(!curve->count);
	return 0;
}

static int __init tide_test_curve(struct tide_lender *lender)
{
	struct tide_curve *curve = vmalloc(sizeof(*curve));
	int err = curve ? tide_test_curve_of(curve) : -ENOMEM;

	vfree(curve);
	return err;
}

struct tide_part_test {
	const char *name;
	int (*run)(struct tide_lender *lender);
};

static const struct tide_part_test tide_part_tests[] __initconst = {
	{ "numbers", tide_test_numbers },
	{ "names", tide_test_names },
	{ "identities", tide_test_identities },
	{ "versions", tide_test_versions },
	{ "ages of the catalog", tide_test_ages },
	{ "pages of the catalog", tide_test_pages },
	{ "objects of the catalog", tide_test_table },
	{ "windows", tide_test_windows },
	{ "ranges", tide_test_ranges },
	{ "curve", tide_test_curve },
};

static int __init tide_test_part(unsigned int i)
{
	struct tide_lender *lender = kzalloc(sizeof(*lender), GFP_KERNEL);
	int err;

	if (!lender)
		return -ENOMEM;
	lender->config.size_bytes = U64_MAX;
	tide_ages_init(&lender->ages);
	err = tide_part_tests[i].run(lender);
	if (!err && tide_test_failures)
		err = -EBADMSG;
	if (err)
		pr_err("self-test: %s: failed\n", tide_part_tests[i].name);
	kfree(lender);
	return err;
}

/**
 * tide_parts_test_init() - run the tests, if they are asked for
 *
 * Return: 0, -EBADMSG when something else came out, or another negative errno.
 */
int __init tide_parts_test_init(void)
{
	unsigned int i;
	int err = 0;

	for (i = 0; tide_selftest_wanted && i < ARRAY_SIZE(tide_part_tests) && !err; i++)
		err = tide_test_part(i);
	if (tide_selftest_wanted && !err)
		pr_info("self-test: all parts passed\n");
	return err;
}
