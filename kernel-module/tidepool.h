/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tidepool: a borrower's evicted page-cache pages live in a lender's memory.
 *
 * Which file does what
 *	main.c		load and unload
 *	control.c	configfs: what is the guest's as a whole
 *	control_lenders.c	one directory for each lender
 *	control_borrowers.c	one directory for each borrower
 *	parse.c		the values written there
 *	stats.c		counters and latency histograms as text
 *	wire.c, wire.h	sockets, exact sends and receives; what goes over them
 *	handshake.c, .h	who is at the other end
 *	frames.c, .h	what follows, under the keys of the connection
 *	noise.c, .h	the handshake's arithmetic
 *	identity.c, .h	who this guest is, and how that is written
 *	primitives.c, .h	hashes, curve and cipher of those three
 *	selftest.c	whether they compute what they should, on this kernel
 *	timeline.c	when this guest's memory goes back in time
 *	trace.c, trace.h	tracepoints: what became of each page
 *	ghost.c		what a pool would be worth: the same hooks, no pages
 *	curve.c, curve.h	the arithmetic of that
 *	borrower's side
 *	  filesystem.c	which files, and what tells them apart
 *	  superblock.c	which of a kind's file systems, looked at when mounted
 *	  hooks.c	tracepoints, the wrapped a_ops
 *	  wrappers.c	ftrace wrappers
 *	  gate.c	truncations, invalidations and direct writes in progress
 *	  catalog.c	the files of which pages are in the pool
 *	  table.c	them by inode and by number
 *	  leaves.c	which of their pages are where, in which version
 *	  ages.c	no more of them than a lender granted
 *	  shrink.c	the catalog's memory, given back when it is short
 *	  put.c		evictions, batches, the sending thread
 *	  buffers.c	preallocated buffers for pages on their way out
 *	  window.c	read-ahead windows: what comes from where
 *	  get.c		requests, replies, deadline
 *	  fallback.c	what did not come in time is read from disk
 *	  verify.c	hits that are read from disk as well, and compared
 *	  transmit.c	what is sent beside pages: requests, notes, pings
 *	  crypto.c	encryption of pages on their way out and back
 *	  disk.c	how long this guest's own disk takes
 *	  sequential.c	what is read in order need not go to the pool
 *	  breaker.c	a slow lender is left alone for a while
 *	  borrower.c	the connection to each lender
 *	lender's side
 *	  store.c	remote pages as clean folios of a private inode
 *	  lender.c	the borrowers, their grants and sessions
 *	  listen.c	accepting connections
 *	  serve.c	answering them
 *
 * Lock order, outermost first
 *	tide_control.mutex
 *	tide_supers_mutex			a leaf
 *	  table mutex
 *	  tide_lending_mutex			a borrower's mutex is inside
 *	  tide_slots_mutex			lender->sock_mutex is inside
 *	  lender->tx_mutex
 *	    mapping->i_pages (the kernel's)
 *	      file->pages.xa_lock		taken with interrupts off
 *	        gate bucket, files_lock, ages lock, reserve_lock, put_lock, buffers_lock,
 *	        forget_lock, ghost_lock, marks of sequential.c
 *						leaves, with interrupts off
 *	breaker.lock, disk lock, verify lock	leaves, process context only
 *	borrower->mutex
 *	  borrower->send_mutex			may wait for the peer: only when its
 *						sockets are shut down
 *	  store->mutex
 *	    i_pages of the store (the kernel's)
 *	      store->lock, slots		leaves, with interrupts off
 *	tide_stores_mutex			reclaim only tries it; i_pages inside
 */
#ifndef TIDEPOOL_H
#define TIDEPOOL_H

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/jump_label.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/rcupdate.h>
#include <linux/sizes.h>
#include <linux/socket.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "base/compat.h"
#include "base/missratio.h"
#include "transport/frames.h"
#include "transport/handshake.h"
#include "uapi/wire.h"

#define TIDE_MAX_LENDERS	8
#define TIDE_MAX_BORROWERS	64
#define TIDE_MIN_BYTES		((u64)SZ_1M)	/* least that is worth lending */
#define TIDE_MAX_BYTES		((u64)SZ_1T * 16)

/* ------------------------------------------------------------------ */
/* statistics							       */
/* ------------------------------------------------------------------ */

/* 4 buckets an octave: bucket b ends at tide_histogram_limit(b) microseconds */
#define TIDE_HISTOGRAM_BUCKETS	104

struct tide_histogram {
	atomic64_t bucket[TIDE_HISTOGRAM_BUCKETS];
};

void tide_histogram_add(struct tide_histogram *h, u64 ns);
int tide_histogram_show(const struct tide_histogram *h, const char *name,
			char *page, int at);

/* The mean of the last seconds; its owner's lock guards it. */
#define TIDE_RECENT_SECONDS	15

struct tide_recent {
	u32 second;			/* of the newest slot */
	struct tide_recent_slot {
		u64 ns;
		unsigned int count;
	} slot[TIDE_RECENT_SECONDS];
};

void tide_recent_add(struct tide_recent *recent, u64 ns);
u64 tide_recent_mean(struct tide_recent *recent, unsigned int *count);

/* What the borrower counts for one lender; stats.c names the members. */
struct tide_lender_stats {
	atomic64_t get_hits;	/* pages that came from the pool */
	atomic64_t get_hits_buffer;	/* of those, from the outgoing buffer */
	atomic64_t get_misses;	/* the lender had dropped the page */
	atomic64_t get_late;	/* deadline passed, read from disk */
	atomic64_t get_errors;	/* connection lost meanwhile */
	atomic64_t gets_sent;	/* requests: one a read-ahead window */
	atomic64_t puts;	/* pages acknowledged by the lender */
	atomic64_t puts_sent;	/* pages sent */
	atomic64_t put_requests;	/* batches sent */
	atomic64_t drop_nobuffer;	/* puts dropped: no buffer free */
	atomic64_t drop_refused;	/* puts dropped: the lender declined */
	atomic64_t drop_nomem;	/* puts dropped: no room in the catalog */
	atomic64_t drop_stale;	/* puts dropped: page changed meanwhile */
	atomic64_t drop_lost;	/* puts dropped: connection lost */
	atomic64_t evicted_notices;	/* pages the lender said it dropped */
	atomic64_t connects;
	atomic64_t disconnects;
	atomic64_t get_corrupt;	/* not what was put: read from disk */
	atomic64_t breaker_opened;	/* times the latency breaker stopped */
	atomic64_t breaker_opened_small;	/* times it stopped small reads */
	atomic64_t breaker_opened_large;	/* times it stopped large ones */
	atomic64_t drop_breaker;	/* puts dropped: stopped by the breaker */
	atomic64_t get_skipped;	/* read from disk because of the breaker */
	atomic64_t drop_sequential;	/* puts dropped: read sequentially */
	atomic64_t get_skipped_sequential;	/* read from disk with their stream */
	atomic64_t bad_frames;	/* none, or not the lender's */
};

/* What the lender counts for one borrower. */
struct tide_borrower_stats {
	atomic64_t gets;	/* requests */
	atomic64_t get_hits;	/* pages sent */
	atomic64_t get_misses;	/* pages asked for and not there */
	atomic64_t puts;	/* pages stored */
	atomic64_t puts_refused;	/* pages not stored: memory is short */
	atomic64_t recycled;	/* oldest pages dropped for newer ones */
	atomic64_t reclaimed;	/* pages the kernel reclaimed */
	atomic64_t notices_sent;	/* pages named in eviction notices */
	atomic64_t bad_frames;	/* none, or not the borrower's */
};

/* Counted for the guest as a whole. */
struct tide_stats {
	atomic64_t misses;	/* pages of known files read from disk */
	atomic64_t gets_nomem;	/* windows read from disk: no request */
	atomic64_t drop_gate;	/* puts refused: truncation or direct write */
	atomic64_t drop_notready;	/* puts refused: no lender connected */
	atomic64_t drop_nofile;	/* puts refused: no file descriptor free */
	atomic64_t shrunk;	/* catalog entries given back: memory is short */
	atomic64_t rejected;	/* handshakes refused on this guest's port */
	atomic64_t warnings;	/* broken invariants: must be 0 */
	atomic64_t verified;	/* hits that were compared with the disk */
	atomic64_t verify_failed;	/* of those, not the same: must be 0 */
};

extern struct tide_stats tide_stats;

int tide_show_stats(char *page);
int tide_show_lender_stats(const struct tide_lender_stats *stats, char *page);
int tide_show_borrower_stats(const struct tide_borrower_stats *stats, char *page);

/* ------------------------------------------------------------------ */
/* wire.c: sockets						       */
/* ------------------------------------------------------------------ */

int tide_wire_send(struct socket *sock, void *data, size_t size, int flags);
int tide_wire_send_pages(struct socket *sock, struct bio_vec *bvec, size_t n);
u32 tide_wire_position(const struct socket *sock);
bool tide_wire_passed(const struct socket *sock, u32 position);
ktime_t tide_wire_until(size_t bytes);
int tide_wire_recv_iter(struct socket *sock, struct iov_iter *iter, ktime_t until);
int tide_wire_recv_by(struct socket *sock, void *data, size_t size, ktime_t until);
int tide_wire_recv(struct socket *sock, void *data, size_t size);
int tide_wire_recv_pages(struct socket *sock, struct bio_vec *bvec, size_t n);
void tide_wire_tune(struct socket *sock);
void tide_wire_timeout(struct socket *sock, unsigned int ms);

/* ------------------------------------------------------------------ */
/* borrower side						       */
/* ------------------------------------------------------------------ */

enum tide_strategy {
	TIDE_NON_INCLUSIVE,	/* the lender keeps what it sends back */
	TIDE_EXCLUSIVE,		/* the lender drops what it sends back */
};

enum tide_encryption {
	TIDE_AES_GCM,
	TIDE_NO_ENCRYPTION,
};

enum tide_lender_state {
	TIDE_LENDER_DISABLED,
	TIDE_LENDER_CONNECTING,
	TIDE_LENDER_CONNECTED,
	TIDE_LENDER_REJECTED,
};

enum tide_breaker_mode {
	TIDE_BREAKER_OFF,
	TIDE_BREAKER_THRESHOLDS,	/* by the two pairs of thresholds */
	TIDE_BREAKER_AUTOMATIC,		/* by comparison with the own disk */
};

struct tide_thresholds {
	u32 resume_us, stop_us;
};

/**
 * struct tide_lender_config - what configfs sets for one lender
 * @address: where it listens
 * @port: its TCP port
 * @identity: who must answer there; sock_mutex guards it
 * @identity_set: it was written
 * @size_bytes: how much to borrow
 * @strategy: what becomes of a page that is read back
 * @deadline_us: a get not answered after this is read from disk
 * @encryption: of the pages that it is given
 * @breaker: when a slow lender is left alone
 * @breaker_short: thresholds of the pings' mean over the last 15 s
 * @breaker_long: thresholds of their moving average
 * @sequential_filter: it does not get what is read sequentially
 */
struct tide_lender_config {
	struct sockaddr_storage address;
	u16 port;
	struct tide_identity identity;
	bool identity_set;
	u64 size_bytes;
	enum tide_strategy strategy;
	u32 deadline_us;
	enum tide_encryption encryption;
	enum tide_breaker_mode breaker;
	struct tide_thresholds breaker_short, breaker_long;
	bool sequential_filter;
};

/*
 * Reads of a few pages and those of long read-ahead windows are told apart: a
 * network may beat a disk that has to seek for the ones, and lose to the same
 * disk, which is good at the others.
 */
enum tide_size {
	TIDE_SMALL,
	TIDE_LARGE,
	TIDE_SIZES,
};

#define TIDE_SMALL_PAGES	16

static inline enum tide_size tide_size(unsigned long pages)
{
	return pages > TIDE_SMALL_PAGES ? TIDE_LARGE : TIDE_SMALL;
}

#define TIDE_LOSSES		3	/* lost connections in a minute are too many */

/**
 * struct tide_breaker - what breaker.c measures and decides for one lender
 * @lock: guards all of these
 * @pings: the latest
 * @long_ns: their moving average
 * @long_count: how many it is made of
 * @unanswered: when the oldest ping that is not answered was sent
 * @open: the lender is left alone: no reads, and no puts
 * @unheard: large reads have stopped with the small ones, and there were none since
 * @flaps: the connection has been lost again and again
 * @lost: when it was the last times, in seconds; @losses is how often in all
 * @reads: of each size; @open ones are stopped: @gets is how long the latest
 *	took, @got_ns the last, @next_probe when one is sent all the same,
 *	@busy_disk_ns what the disk took while they were stopped, and @resumed when
 *	that ended
 */
struct tide_breaker {
	spinlock_t lock;	/* a leaf */
	struct tide_recent pings;
	u64 long_ns;
	unsigned int long_count;
	u64 unanswered;
	bool open, unheard, flaps;
	u32 lost[TIDE_LOSSES];
	unsigned int losses;
	struct tide_breaker_reads {
		bool open;
		struct tide_recent gets;
		u64 got_ns;
		unsigned long next_probe;
		u64 busy_disk_ns;
		unsigned long resumed;
	} reads[TIDE_SIZES];
};

struct tide_breaker_means {
	u64 short_ns, long_ns;
	unsigned int pings;
	struct {
		u64 get_ns, disk_ns;
		unsigned int gets;
	} reads[TIDE_SIZES];
};

#define TIDE_AGES	128

/**
 * struct tide_ages - how old the entries are that the catalog has of a lender
 * @lock: guards all of these and the lender's catalog_pages
 * @newest: version that there was
 * @oldest: entries of older versions are forgotten
 * @used: how many there are, at least two
 * @age: from @first to the next one's, @count entries; of the first, those that
 *	are forgotten and not yet cleared
 */
struct tide_ages {
	spinlock_t lock;	/* a leaf */
	u64 newest, oldest;
	unsigned int used;
	struct tide_age {
		u64 first;
		s64 count;
	} age[TIDE_AGES];
};

/**
 * struct tide_lender - what a borrower knows of one lender
 *
 * Made and destroyed by control.c; alive while configured. While enabled it
 * sits in one of TIDE_MAX_LENDERS slots, which is what a catalog entry names.
 */
struct tide_lender {
	char name[TIDE_NAME_MAX];
	struct tide_lender_config config;
	int slot;
	struct kref kref;
	struct completion released;

	enum tide_lender_state state;
	bool ready;		/* gets and puts may be handed over */
	bool stalled;		/* a get was late and nothing came since */
	bool closing;		/* being disabled */
	ktime_t rx_until;	/* when the frame that comes now, or the next one, must be there */
	bool hurry;		/* something has changed: try again now */
	enum tide_reason reason;	/* why the last try was in vain */
	u64 granted_pages;
	atomic64_t catalog_pages;	/* without those that are forgotten */
	struct tide_ages ages;
	u64 ping_ns, rtt_ns;	/* last round trip and its moving average */
	struct tide_breaker breaker;
	bool filtering;		/* it does not get what is read sequentially */

	struct task_struct *main;
	struct mutex sock_mutex;	/* the two pointers below, config.identity */
	struct socket *get_sock;
	struct socket *put_sock;
	u8 contribution[TIDE_HASH_SIZE];	/* what both have said in the handshake */
	struct tide_sealers get_seal;	/* sending under tx_mutex; receiving: @main */
	struct tide_sealers put_seal;	/* the sender's */
	struct delayed_work tick;

	/* gets */
	spinlock_t pending_lock;	/* the lists of requests, accepting */
	bool accepting;
	struct list_head unsent;	/* requests that no frame names yet */
	struct list_head pending;	/* requests on the wire, oldest first */
	u64 next_id;
	struct delayed_work deadline;
	struct mutex tx_mutex;		/* tx_*: one sender at a time */
	u8 *tx_buffer;
	size_t tx_offset, tx_length;
	struct work_struct tx_work;
	bool ping_due, resize_due;
	struct tide_data_item *rx_item;	/* metadata of the frame being received */
	struct page *scratch;		/* takes pages nobody waits for */
	struct tide_cipher *rx_cipher;	/* the receiving thread's */

	/* notes for the lender on pages it may drop */
	spinlock_t forget_lock;
	unsigned int forget_head, forget_tail;
	struct tide_forget_item *forget;

	/* puts */
	spinlock_t put_lock;		/* queue, batches */
	struct list_head put_queue;
	unsigned int put_queued;	/* pages in it */
	struct list_head batches_free, batches_sent;
	wait_queue_head_t put_wait;
	struct task_struct *sender;
	struct tide_batch *batch_store;
	struct tide_put_head *put_head;	/* the sender's frame, its pages: */
	struct bio_vec *put_bvec;
	struct page *put_sealed[TIDE_PUT_MAX];	/* encrypted, being sent */
	struct tide_cipher *put_cipher;
	u64 put_id;
	bool has_buffers;		/* counts among their users */

	struct tide_lender_stats stats;
	struct tide_histogram get_latency, put_latency, ping_latency;
};

extern struct tide_lender __rcu *tide_lenders[TIDE_MAX_LENDERS];
extern atomic_t tide_lenders_ready;	/* how many take puts now */
extern unsigned int tide_lenders_enabled;

/* Has this guest any lender, connected or not? */
static inline bool tide_borrows(void)
{
	return READ_ONCE(tide_lenders_enabled);
}

struct tide_lender *tide_lender_create(const char *name);
int tide_lender_enable(struct tide_lender *lender);
void tide_lender_disable(struct tide_lender *lender);
void tide_lender_destroy(struct tide_lender *lender);
void tide_lender_identify(struct tide_lender *lender, const struct tide_identity *identity);
void tide_lender_resize(struct tide_lender *lender);
void tide_lender_put(struct tide_lender *lender);
void tide_lender_break(struct tide_lender *lender);
void tide_lenders_break(void);
bool tide_lender_silent(const struct tide_lender *lender);
int tide_lender_recv(struct tide_lender *lender, void *data, size_t size);
int tide_lender_metadata(struct tide_lender *lender, const struct tide_frame *frame, size_t size);
const char *tide_lender_state_name(const struct tide_lender *lender);
const char *tide_lender_reason(const struct tide_lender *lender);

static inline bool tide_lender_usable(const struct tide_lender *lender)
{
	return lender && READ_ONCE(lender->ready) && !READ_ONCE(lender->stalled);
}

/* breaker.c */
void tide_breaker_set(struct tide_lender *lender, enum tide_breaker_mode breaker,
		      const struct tide_thresholds *peak,
		      const struct tide_thresholds *mean);
void tide_breaker_reset(struct tide_lender *lender, bool closed);
void tide_breaker_pinged(struct tide_lender *lender, u64 sent_ns);
void tide_breaker_ponged(struct tide_lender *lender, u64 sent_ns, u64 rtt_ns);
void tide_breaker_got(struct tide_lender *lender, enum tide_size size, u64 ns);
void tide_breaker_lost(struct tide_lender *lender);
void tide_breaker_means(struct tide_lender *lender, struct tide_breaker_means *means);
void tide_breaker_update(struct tide_lender *lender);
bool tide_breaker_admits(struct tide_lender *lender, enum tide_size size);

/* Is this lender left alone? */
static inline bool tide_breaker_open(const struct tide_lender *lender)
{
	return READ_ONCE(lender->breaker.open);
}

/* Are reads of one size, at least, stopped? */
static inline bool tide_breaker_stops(const struct tide_lender *lender,
				      enum tide_size size)
{
	return READ_ONCE(lender->breaker.reads[size].open);
}

/* sequential.c */
struct tide_file;
void tide_filter_set(struct tide_lender *lender, bool on);
void tide_filter_refresh(struct tide_lender *lender);
bool tide_sequential_wants(struct inode *inode);
bool tide_sequential_read(struct tide_file *file, pgoff_t index, unsigned long nr);
void tide_sequential_drop(struct tide_file *file, pgoff_t first, pgoff_t last);
bool tide_sequential_take(struct tide_file *file, pgoff_t first, pgoff_t last);
void tide_sequential_free(struct tide_file *file);

/* disk.c */
extern struct tide_histogram tide_disk_latency;
bool tide_disk_start(struct folio *folio, enum tide_size size);
void tide_disk_submitted(void);
bool tide_disk_due(enum tide_size size);
u64 tide_disk_mean(enum tide_size size);

/**
 * struct tide_file - a file of which pages are, or were, in the pool
 *
 * Known by superblock, subvolume, inode number and generation, so that it
 * outlives the in-memory inode (invariant: never the mount). It is forgotten when
 * nothing of it is in the pool and its inode is not in memory. @pages holds leaves
 * of entries, 8 bytes a page: version and slot of the lender. @outgoing holds
 * the pages that are in a buffer and not yet acknowledged, by index. Both, @mapping and @dead
 * are guarded by @pages.xa_lock, taken with interrupts off; so is @changes, which
 * grows whenever pages of it are dropped because they may have changed.
 */
struct tide_file {
	struct hlist_node hash;
	struct super_block *sb;
	u64 volume;		/* the subvolume, where there are such */
	unsigned long ino;
	u32 generation;
	dev_t dev;		/* of @sb, for those who trace */
	u64 id;			/* its name on the wire */
	u64 changes;
	refcount_t refs;
	unsigned int pass;	/* of the walk that saw it last */
	struct xarray pages;
	struct rb_root outgoing;
	struct tide_sequential *sequential;	/* NULL until it is read with the filter on */
	struct address_space *mapping;	/* whose a_ops are wrapped, or NULL */
	union {
		struct list_head reserve;	/* while in the reserve */
		struct hlist_node by_id;	/* by id, while known */
	};
	struct rcu_head rcu;
	bool dead;
	bool used;		/* put to or read from since the shrinker looked */
};

static inline void tide_file_used(struct tide_file *file)
{
	if (!READ_ONCE(file->used))
		WRITE_ONCE(file->used, true);
}

#define tide_file_lock(file, flags)	xa_lock_irqsave(&(file)->pages, flags)
#define tide_file_unlock(file, flags)	xa_unlock_irqrestore(&(file)->pages, flags)

int tide_catalog_init(void);
void tide_catalog_exit(void);
struct tide_file *tide_file_find(struct inode *inode);
struct tide_file *tide_file_find_or_reserve(struct inode *inode);
void tide_file_put(struct tide_file *file);
void tide_file_kill(struct tide_file *file);
bool tide_file_empty(struct tide_file *file);
void tide_file_drop(struct tide_file *file, pgoff_t first, pgoff_t last);
void tide_file_unlearn(struct tide_file *file, pgoff_t index);
void tide_file_drop_locked(struct tide_file *file, pgoff_t first, pgoff_t last);
bool tide_file_has(struct tide_file *file, pgoff_t first, pgoff_t last);
u64 tide_file_version(struct tide_file *file, pgoff_t index, int *slot);
void tide_file_erase(struct tide_file *file, pgoff_t index, u64 version);
void tide_file_erase_locked(struct tide_file *file, pgoff_t index, u64 version);
int tide_file_record(struct tide_file *file, pgoff_t index, u64 version,
		     int slot, bool (*still)(void *arg), void *arg);
void tide_catalog_evicted(int slot, u64 id, pgoff_t index, u64 version);
void tide_catalog_granted(struct tide_lender *lender);
void tide_catalog_purge_lender(int slot);
void tide_catalog_purge_super(struct super_block *sb);
void tide_catalog_for_each(void (*fn)(struct tide_file *file, void *arg), void *arg);

extern unsigned int tide_file_count;

static inline unsigned int tide_catalog_files(void)
{
	return READ_ONCE(tide_file_count);
}

void tide_ages_init(struct tide_ages *ages);
u64 tide_catalog_pages(void);
unsigned long tide_catalog_shrink(unsigned long objects, unsigned long *pages);
u64 tide_next_version(void);
void tide_forget(int slot, u64 file, pgoff_t first, pgoff_t last);

/* shrink.c */
int tide_shrinker_init(void);
void tide_shrinker_exit(void);

/* filesystem.c */
bool tide_eligible_super(const struct super_block *sb);
bool tide_watched(struct address_space *mapping);
bool tide_eligible(struct address_space *mapping);
bool tide_exchanges_extents(const struct super_block *sb);
bool tide_locks_extents(const struct super_block *sb);
u64 tide_volume(struct inode *inode);
void tide_name_refused(const struct address_space *mapping);

/* superblock.c */
bool tide_file_admitted(struct inode *inode);
void tide_super_left(const struct super_block *sb);
void tide_supers_forget(void);

/* gate.c */
enum tide_section_kind {
	TIDE_SECTION_TRUNCATE,
	TIDE_SECTION_INVALIDATE,
	TIDE_SECTION_DIRECT_IO,
	TIDE_SECTION_EXCHANGE,
	TIDE_SECTION_UNMOUNT,
	TIDE_SECTION_HAS_PAGE,
	TIDE_SECTION_GET_FOLIOS,
	TIDE_SECTION_INVALIDATE_INODE,
};

/* One call in progress that puts of a mapping must not overlap with. */
struct tide_section {
	struct hlist_node hash;
	const void *key;		/* the mapping, or the superblock */
	const void *argument;		/* first argument of the wrapped call */
	struct task_struct *task;
	enum tide_section_kind kind;
	pgoff_t first, last;
};

void tide_section_enter(struct tide_section *s, enum tide_section_kind kind,
			const void *key, const void *argument,
			pgoff_t first, pgoff_t last);
void tide_section_leave(struct tide_section *s);
bool tide_section_mine(enum tide_section_kind kind, const void *key,
		       const void *argument);
void tide_section_enter_write(struct tide_section *s, struct address_space *mapping,
			      const void *argument, pgoff_t first, pgoff_t last);
void tide_gate_bar(const struct address_space *mapping);
void tide_writes_forget(const struct address_space *mapping);
bool tide_gate_closed(struct address_space *mapping, pgoff_t first, pgoff_t last);
void tide_gate_begin(void);
bool tide_gate_unsettled(struct inode *inode);
void tide_gate_forget(void);
void tide_gate_wait_empty(void);

/* ghost.c */
enum tide_ghost_mode {
	TIDE_GHOST_OFF,
	TIDE_GHOST_NON_INCLUSIVE,
	TIDE_GHOST_EXCLUSIVE,
};

DECLARE_STATIC_KEY_FALSE(tide_ghost_on);

int tide_ghost_switch(enum tide_ghost_mode mode);
enum tide_ghost_mode tide_ghost_mode(void);
int tide_ghost_show(char *page);
void tide_ghost_evicted(struct address_space *mapping, struct folio *folio);
void tide_ghost_added(struct address_space *mapping, struct folio *folio);
void tide_ghost_dirtied(struct address_space *mapping, struct folio *folio);
void tide_ghost_drop(struct inode *inode, pgoff_t first, pgoff_t last);
void tide_ghost_unmounted(struct super_block *sb);

/* The hooks ask this first: a jump that is not taken while the mode is off. */
#define tide_ghost_is_on()	static_branch_unlikely(&tide_ghost_on)

extern u32 tide_ghost_threshold;

/*
 * May a page of this folio be one that ghost mode follows? No, mostly. A folio
 * begins at a multiple of its size, so most are seen to be of one block without a
 * look at how large they are.
 */
static __always_inline bool tide_ghost_follows(const struct address_space *mapping,
					       struct folio *folio)
{
	u64 ino = mapping->host->i_ino;
	pgoff_t index = folio->index;

	/* A plain load, part of the comparison: as it was or as it is will do. */
	if (unlikely(tide_curve_chosen(data_race(tide_ghost_threshold), ino, index)))
		return folio_test_large(folio) ||
		       tide_curve_page_of_block(ino, index) == index;
	return unlikely(!(index % (2 * TIDE_CURVE_BLOCK))) &&
	       folio_nr_pages(folio) > TIDE_CURVE_BLOCK;
}

/* hooks.c */
DECLARE_STATIC_KEY_FALSE(tide_has_peers);

/* Do the hooks work for a peer, and not for ghost mode alone? */
#define tide_serves_peers()	static_branch_unlikely(&tide_has_peers)

int tide_hooks_init(void);
void tide_hooks_exit(void);
int tide_hooks_hold(void);
void tide_hooks_release(void);
int tide_hooks_hold_for_peer(void);
void tide_hooks_release_from_peer(void);
bool tide_hooks_are_in(void);
void tide_hook_mapping(struct tide_file *file, struct address_space *mapping);
void tide_unhook_mapping(struct tide_file *file);

/* wrappers.c */
void tide_bar_mapping(struct address_space *mapping);
int tide_wrappers_install(void);
void tide_wrappers_remove(void);

/* trace.h shows these: how a read of a page that is in the pool ended, */
enum tide_got {
	TIDE_GOT_HIT,		/* it came from the lender */
	TIDE_GOT_BUFFER,	/* from a buffer on its way out */
	TIDE_GOT_MISS,		/* the lender had dropped it: read from disk */
	TIDE_GOT_LATE,		/* not there by the deadline: read from disk */
	TIDE_GOT_ERROR,		/* connection lost: read from disk */
	TIDE_GOT_CORRUPT,	/* not what was put: read from disk */
};

/* and why a page did not get there, as the statistics name it. */
enum tide_drop_reason {
	TIDE_DROP_GATE,
	TIDE_DROP_NOTREADY,
	TIDE_DROP_NOFILE,
	TIDE_DROP_NOBUFFER,
	TIDE_DROP_REFUSED,
	TIDE_DROP_NOMEM,
	TIDE_DROP_STALE,
	TIDE_DROP_LOST,
	TIDE_DROP_BREAKER,
	TIDE_DROP_SEQUENTIAL,
};

/* put.c */
struct tide_put_head {
	struct tide_frame frame;
	struct tide_put_item item[TIDE_PUT_MAX];
	u8 tag[TIDE_TAG_SIZE];		/* behind the last item */
} __packed;

struct tide_buffer;

struct tide_batch {
	struct list_head list;
	u64 id;
	unsigned int count;
	ktime_t sent;
	bool sending;		/* the sender is at it; under put_lock */
	u32 end;		/* where on the wire its last byte is followed by the next */
	struct tide_buffer *buffer[TIDE_PUT_MAX];
};

bool tide_lenders_take_puts(void);
void tide_put_folio(struct address_space *mapping, struct folio *folio);
int tide_put_prepare(struct tide_lender *lender);
void tide_put_release(struct tide_lender *lender);
int tide_sender_start(struct tide_lender *lender);
void tide_sender_stop(struct tide_lender *lender);
int tide_put_acknowledged(struct tide_lender *lender, u64 id,
			  unsigned int count, u64 stored);

/* crypto.c */
struct tide_cipher;

int tide_crypto_init(void);
struct tide_cipher *tide_cipher_create(void);
void tide_cipher_free(struct tide_cipher *c);
int tide_cipher_renew(struct tide_lender *lender, const u8 *contribution);
void tide_cipher_salt(struct tide_cipher *c);
int tide_encrypt(struct tide_cipher *c, const struct tide_page_id *id,
		 struct page *from, struct page *to, u8 *tag);
int tide_decrypt(struct tide_cipher *c, const struct tide_page_id *id,
		 struct page *page, const u8 *tag);

/* verify.c */
extern unsigned int tide_verify_one_in;

/* get.c */
int tide_get_init(void);
void tide_get_exit(void);
void tide_get_readahead(struct readahead_control *rac,
			const struct address_space_operations *orig);
int tide_get_read_folio(struct file *file, struct folio *folio,
			const struct address_space_operations *orig);
void tide_get_pump(struct tide_lender *lender, int flags);
void tide_get_abort(struct tide_lender *lender);
int tide_get_data(struct tide_lender *lender, const struct tide_frame *frame);
int tide_get_prepare(struct tide_lender *lender);
void tide_get_release(struct tide_lender *lender);

/* ------------------------------------------------------------------ */
/* lender side							       */
/* ------------------------------------------------------------------ */

struct tide_store;

/* What is remembered of a lent page, at most: it counts as lent, too. */
#define TIDE_NOTE_COST		128

/**
 * struct tide_borrower - what a lender knows of one borrower
 *
 * Made and destroyed by control.c. The session members are guarded by @mutex;
 * @send_mutex orders frames on the GET channel; who has it may wait for the
 * borrower, so nobody takes it whom the borrower does not concern.
 */
struct tide_borrower {
	char name[TIDE_NAME_MAX];
	struct tide_identity identity;	/* guarded by tide_lending_mutex */
	bool identity_set;
	u64 quota_bytes;
	bool enabled;

	struct list_head list;		/* tide_borrowers */
	struct list_head made;		/* tide_borrowers_made */
	struct mutex mutex;		/* the session: the members below */
	struct mutex send_mutex;	/* one frame at a time; @get */
	struct tide_connection *get, *put;
	u64 session;
	u64 wanted_bytes;
	u64 granted_bytes;
	struct tide_store *store;	/* of the current session */
	bool grant_due;			/* it is to be told of a new grant */
	struct delayed_work notify;
	struct tide_borrower_stats stats;
};

struct tide_borrower *tide_borrower_create(const char *name);
int tide_borrower_enable(struct tide_borrower *borrower);
void tide_borrower_disable(struct tide_borrower *borrower);
void tide_borrower_destroy(struct tide_borrower *borrower);
int tide_borrower_identify(struct tide_borrower *borrower,
			   const struct tide_identity *identity);
void tide_borrower_requota(struct tide_borrower *borrower);
const char *tide_borrower_state_name(struct tide_borrower *borrower);
u64 tide_borrower_lent_pages(struct tide_borrower *borrower);
unsigned int tide_borrower_connections(struct tide_borrower *borrower);
void tide_lending_shrink(void);
void tide_lending_break(void);
bool tide_listening(void);

/* What this guest may lend, set through configfs. */
extern u64 tide_lend_bytes;
extern u64 tide_reserve_bytes;
extern u16 tide_port;

/* store.c */
int tide_store_init(void);
void tide_store_exit(void);
struct tide_store *tide_store_create(struct tide_borrower *borrower, u64 bytes);
void tide_store_destroy(struct tide_store *store);
void tide_store_resize(struct tide_store *store, u64 bytes);
struct folio *tide_store_get(struct tide_store *store, u64 file, pgoff_t index,
			     u64 version, u8 *tag);
struct folio *tide_store_prepare(struct tide_store *store);
void tide_store_cancel(struct tide_store *store, struct folio *folio);
int tide_store_add(struct tide_store *store, const struct tide_put_item *item,
		   struct folio *folio);
void tide_store_settle(struct tide_store *store, struct folio **folio,
		       unsigned int count);
void tide_store_forget(struct tide_store *store, u64 file, pgoff_t first,
		       pgoff_t last, u64 before);
unsigned int tide_store_notices(struct tide_store *store,
				struct tide_page_id *id, unsigned int max);
unsigned int tide_store_untold(struct tide_store *store);
void tide_store_trim(struct tide_store *store, u64 pages);
u64 tide_store_pages(struct tide_store *store);
u64 tide_store_lent(void);
u64 tide_store_fits(u64 bytes);

extern const struct address_space_operations tide_store_aops;

static inline bool tide_store_owns(const struct address_space *mapping)
{
	return mapping->a_ops == &tide_store_aops;
}

void tide_store_deleted(struct address_space *mapping, struct folio *folio);

/* ------------------------------------------------------------------ */
/* timeline.c							       */
/* ------------------------------------------------------------------ */

int tide_timeline_init(void);
void tide_timeline_exit(void);
bool tide_timeline_held(void);

/* ------------------------------------------------------------------ */
/* control.c							       */
/* ------------------------------------------------------------------ */

int tide_control_init(void);
void tide_control_exit(void);

/*
 * The tests build the module with one mechanism broken on purpose, to show that
 * it is needed: -DTIDEPOOL_BREAK_<mechanism>.
 */
#define tide_broken(what)	__is_defined(TIDEPOOL_BREAK_##what)

/* -DTIDEPOOL_BREAK_LENDER: it cheats the borrowers that have such a name. */
static inline bool tide_cheats(const struct tide_borrower *borrower, const char *how)
{
	return tide_broken(LENDER) && !strcmp(borrower->name, how);
}

/* Says once a second at most that what must never happen has happened. */
#define tide_warn(fmt, ...)						\
	do {								\
		atomic64_inc(&tide_stats.warnings);			\
		pr_warn_ratelimited("warning: " fmt, ##__VA_ARGS__);	\
	} while (0)

#endif /* TIDEPOOL_H */
