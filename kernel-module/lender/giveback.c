// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lent pages are given back to the kernel before it turns to anything of the guest's
 * own: a shrinker gives the oldest away, of those borrowers first who are not connected.
 */
#include <linux/fs.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "base/compat.h"
#include "lender/giveback.h"
#include "lender/shelf_pages.h"

#define TIDE_GIVE_SHIFT		8		/* reclaim gets 1/256 of memory at once */

atomic64_t tide_lent_pages = ATOMIC64_INIT(0);

static struct shrinker *tide_giver;
static LIST_HEAD(tide_shelves);
static DEFINE_MUTEX(tide_shelves_mutex);	/* the list; the shrinker only tries */

/**
 * tide_give_cool() - let pages go that nobody else holds
 * @shelf: whose
 * @slot: their indices
 * @count: how many
 *
 * The others move to the cold end of their list. Never waits.
 *
 * Return: how many have gone.
 */
unsigned long tide_give_cool(struct tide_shelf *shelf, const pgoff_t *slot, unsigned int count)
{
	unsigned long gone = 0;
	unsigned int i, first = 0;

	for (i = 1; i <= count; i++) {
		if (i < count && slot[i] == slot[i - 1] + 1)
			continue;
		gone += invalidate_mapping_pages(shelf->inode->i_mapping, slot[first],
						 slot[i - 1]);
		first = i;
	}
	return gone;
}

static unsigned long tide_give_pages(struct tide_shelf *shelf, unsigned long pages)
{
	struct tide_notes *notes = &shelf->notes;
	unsigned long tried = 0, gone;
	pgoff_t slot[TIDE_GIVE_BATCH];

	gone = tide_give_cool(shelf, slot, tide_notes_overdue(notes, slot, TIDE_GIVE_BATCH));
	while (tried < pages) {
		unsigned int n = tide_notes_eldest(notes, slot,
						   min(pages - tried, TIDE_GIVE_BATCH));

		if (!n)
			break;
		gone += tide_give_cool(shelf, slot, n);
		tried += n;
	}
	return gone;
}

/*
 * Asked only by reclaim, which is under way because memory is short: lent pages
 * are no cache of this guest that /proc/sys/vm/drop_caches speaks of. No seeks:
 * the kernel takes half of what is counted, whatever its priority, and what
 * it gets in its first round spares it the guest's own pages.
 */
static unsigned long tide_give_count(struct shrinker *shrinker,
				     struct shrink_control *sc)
{
	unsigned long most = totalram_pages() >> TIDE_GIVE_SHIFT;

	if (!(current->flags & PF_MEMALLOC))
		return 0;
	return min_t(u64, tide_shelf_lent(), 2 * most);
}

/* Those of borrowers that are gone, and may come back, go first. */
static unsigned long tide_give_lingering(unsigned long wanted)
{
	struct tide_shelf *shelf;
	unsigned long gone = 0;

	list_for_each_entry(shelf, &tide_shelves, list)
		if (gone < wanted && !READ_ONCE(shelf->borrower->get))
			gone += tide_give_pages(shelf, min_t(u64, wanted - gone,
							     tide_shelf_pages(shelf)));
	return gone;
}

/* Each borrower loses its share. */
static unsigned long tide_give_shares(unsigned long wanted)
{
	u64 lent = tide_shelf_lent();
	struct tide_shelf *shelf;
	unsigned long gone = 0;

	list_for_each_entry(shelf, &tide_shelves, list) {
		u64 pages = tide_shelf_pages(shelf);
		u64 share = lent ? mul_u64_u64_div_u64(pages, wanted, lent) + 1 : 0;

		gone += tide_give_pages(shelf, min(share, pages));
	}
	return gone;
}

static unsigned long tide_give_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	unsigned long gone;

	if (!tide_shelf_lent() || !mutex_trylock(&tide_shelves_mutex))
		return SHRINK_STOP;
	gone = tide_give_lingering(sc->nr_to_scan);
	if (gone < sc->nr_to_scan)
		gone += tide_give_shares(sc->nr_to_scan - gone);
	mutex_unlock(&tide_shelves_mutex);
	tide_account_reclaimed(gone);
	return gone ?: SHRINK_STOP;
}

/**
 * tide_give_room() - let some pages go of borrowers that are not connected
 *
 * Return: how many have gone; 0, too, while somebody else is at it.
 */
unsigned long tide_give_room(void)
{
	unsigned long gone;

	if (!mutex_trylock(&tide_shelves_mutex))
		return 0;
	gone = tide_give_lingering(TIDE_GIVE_BATCH);
	mutex_unlock(&tide_shelves_mutex);
	return gone;
}

void tide_give_add(struct tide_shelf *shelf)
{
	mutex_lock(&tide_shelves_mutex);
	list_add_tail(&shelf->list, &tide_shelves);
	mutex_unlock(&tide_shelves_mutex);
}

/**
 * tide_give_remove() - a shelf goes as a whole
 * @shelf: nothing is given away of it any more
 */
void tide_give_remove(struct tide_shelf *shelf)
{
	mutex_lock(&tide_shelves_mutex);
	list_del(&shelf->list);
	mutex_unlock(&tide_shelves_mutex);
}

int tide_give_init(void)
{
	tide_giver = tide_shrinker_create("tidepool-lent", tide_give_count, tide_give_scan);
	if (!tide_giver)
		return -ENOMEM;
	tide_giver->seeks = 0;
	return 0;
}

void tide_give_exit(void)
{
	tide_shrinker_destroy(tide_giver);
}
