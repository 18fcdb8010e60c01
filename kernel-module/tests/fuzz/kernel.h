/* SPDX-License-Identifier: GPL-2.0 */
/*
 * As much of the kernel as the parsers of the wire need, in user space: one thread, no interrupts, a clock that the
 * fuzzers turn. Names and meanings are the kernel's.
 */
#ifndef FUZZ_KERNEL_H
#define FUZZ_KERNEL_H

#include <errno.h>
#include <limits.h>
#include <linux/types.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
typedef unsigned int gfp_t;
typedef unsigned long pgoff_t;
typedef s64 ktime_t;


#define __packed		__attribute__((packed))

#define __rcu
#define __percpu
#define __printf(a, b)		__attribute__((format(printf, a, b)))
#define container_of(p, type, member)	((type *)((char *)(p) - offsetof(type, member)))
#define struct_size(p, member, n)	(sizeof(*(p)) + (n) * sizeof((p)->member[0]))
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define READ_ONCE(x)		(x)
#define WRITE_ONCE(x, v)	((x) = (v))
#define data_race(x)		(x)
#define xchg(p, v)		({ typeof(*(p)) old = *(p); *(p) = (v); old; })
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define max_t(type, a, b)	max((type)(a), (type)(b))
#define min3(a, b, c)		min(min(a, b), c)
#define BIT_ULL(n)		(1ULL << (n))
#define U64_MAX			UINT64_MAX
#define S64_MIN			INT64_MIN
#define S64_MAX			INT64_MAX
#define NSEC_PER_USEC		1000L
#define MSEC_PER_SEC		1000L
#define USEC_PER_MSEC		1000L
#define SZ_1M			(1UL << 20)
#define SZ_1T			(1ULL << 40)
#define PAGE_SHIFT		12
#define PAGE_SIZE		4096UL
#define PAGE_MASK		(~(PAGE_SIZE - 1))

#define KBUILD_MODNAME		"tidepool"
#define EXPORT_SYMBOL_GPL(symbol)	struct symbol

#define cpu_to_le16(x)		(x)
#define cpu_to_le32(x)		(x)
#define cpu_to_le64(x)		(x)
#define le16_to_cpu(x)		(x)
#define le32_to_cpu(x)		(x)
#define le64_to_cpu(x)		(x)

static inline u64 get_unaligned_le64(const void *at)
{
	u64 value;

	memcpy(&value, at, sizeof(value));
	return value;
}

#define pr_info(...)			do { } while (0)
#define pr_info_ratelimited(...)	do { } while (0)
#define pr_warn_ratelimited(...)	do { } while (0)

#define GFP_KERNEL	0u
#define GFP_NOIO	0u
#define __GFP_NOWARN	0u
#define kmalloc_array(n, size, gfp)	malloc((n) * (size))
#define kmalloc(size, gfp)		malloc(size)
#define kvmalloc(size, gfp)		malloc(size)
#define kvcalloc(n, size, gfp)		calloc(n, size)
#define kzalloc(size, gfp)		calloc(1, size)
#define kfree(p)			free(p)
#define kvfree(p)			free(p)
#define kfree_sensitive(p)		free(p)

#define DECLARE_STATIC_KEY_FALSE(name)	extern bool name
#define static_branch_unlikely(name)	(*(name))
#define unlikely(x)			(x)
#define trace_tidepool_get_enabled()	false
#define trace_tidepool_get(...)		do { } while (0)

/* lists */

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct rb_node {
	struct rb_node *left;
};

struct rb_root {
	struct rb_node *node;
};

#define LIST_HEAD(name)	struct list_head name = { &(name), &(name) }

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list_head *list)
{
	return list->next == list;
}

#define list_empty_careful(list)	list_empty(list)

static inline void list_insert(struct list_head *entry, struct list_head *prev, struct list_head *next)
{
	entry->prev = prev;
	entry->next = next;
	prev->next = entry;
	next->prev = entry;
}

static inline void list_add_tail(struct list_head *entry, struct list_head *list)
{
	list_insert(entry, list->prev, list);
}

static inline void list_del(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	entry->next = NULL;
	entry->prev = NULL;
}

static inline void list_move_tail(struct list_head *entry, struct list_head *list)
{
	list_del(entry);
	list_add_tail(entry, list);
}

static inline void list_splice_tail_init(struct list_head *from, struct list_head *to)
{
	while (!list_empty(from))
		list_move_tail(from->next, to);
}

#define list_splice_init(from, to)	list_splice_tail_init(from, to)
#define list_entry(p, type, member)	container_of(p, type, member)
#define list_first_entry_or_null(list, type, member)			\
	(list_empty(list) ? NULL : list_entry((list)->next, type, member))
#define list_for_each_entry(p, list, member)				\
	for (p = list_entry((list)->next, typeof(*p), member); &p->member != (list); \
	     p = list_entry(p->member.next, typeof(*p), member))
#define list_for_each_entry_safe(p, n, list, member)			\
	for (p = list_entry((list)->next, typeof(*p), member),		\
	     n = list_entry(p->member.next, typeof(*p), member); &p->member != (list); \
	     p = n, n = list_entry(n->member.next, typeof(*n), member))
#define hlist_entry_or_null(n, type, member)	((n) ? list_entry(n, type, member) : NULL)
#define hlist_for_each_entry_rcu(p, head, member)			\
	for (p = hlist_entry_or_null((head)->first, typeof(*p), member); p; \
	     p = hlist_entry_or_null(p->member.next, typeof(*p), member))
#define hash_64(value, bits)	((value) >> (64 - (bits)))

/* counters, references, locks: there is one thread */

typedef struct { s64 counter; } atomic64_t;
typedef struct { int counter; } atomic_t;
typedef struct { int counter; } refcount_t;
#define for_each_possible_cpu(cpu)	for ((cpu) = 0; (cpu) < 1; (cpu)++)
#define per_cpu_ptr(p, cpu)		((void)(cpu), (p))
#define refcount_inc(r)		((void)++(r)->counter)
#define refcount_inc_not_zero(r)	(++(r)->counter > 1)
#define smp_load_acquire(p)		(*(p))

struct kref {
	int count;
};

#define ATOMIC_INIT(n)			{ n }
#define ATOMIC64_INIT(n)		{ n }
#define atomic64_inc(a)			((void)(a)->counter++)
#define atomic64_dec(a)			((void)(a)->counter--)
#define atomic64_add(n, a)		((void)((a)->counter += (n)))
#define atomic64_sub(n, a)		((void)((a)->counter -= (n)))
#define atomic64_read(a)		((a)->counter)
#define atomic_add(n, a)		((void)((a)->counter += (n)))
#define atomic_read(a)			((a)->counter)
#define kref_init(k)			((k)->count = 1)
#define kref_get(k)			((k)->count++)
#define kref_get_unless_zero(k)		((k)->count ? ++(k)->count : 0)
#define kref_put(k, release)		((void)(--(k)->count ? (void)0 : release(k)))

#define DECLARE_PER_CPU(type, name)	extern type name
#define this_cpu_add(counter, n)	((void)((counter) += (n)))

typedef struct { int unused; } spinlock_t, wait_queue_head_t;

struct mutex {
	int unused;
};

struct completion {
	int unused;
};

struct lock_class_key {
	int unused;
};

#define DEFINE_MUTEX(name)		struct mutex name
#define spin_lock_init(l)		((void)(l))
#define spin_lock_irq(l)		((void)(l))
#define spin_unlock_irq(l)		((void)(l))
#define spin_lock_irqsave(l, flags)	((void)(l), (flags) = 0)
#define spin_unlock_irqrestore(l, flags)	((void)(l), (void)(flags))
#define mutex_init(l)			((void)(l))
#define mutex_lock(l)			((void)(l))
#define mutex_unlock(l)			((void)(l))
#define mutex_trylock(l)		((void)(l), true)
#define init_completion(c)		((void)(c))
#define complete(c)			((void)(c))
#define wait_for_completion(c)		((void)(c))
#define rcu_read_lock()			do { } while (0)
#define rcu_read_unlock()		do { } while (0)
#define rcu_dereference(p)		(p)
#define rcu_dereference_protected(p, c)	(p)
#define rcu_access_pointer(p)		(p)
#define rcu_assign_pointer(p, v)	((p) = (v))
#define RCU_INIT_POINTER(p, v)		((p) = (v))
#define synchronize_rcu()		do { } while (0)

typedef struct { unsigned int sequence; } seqcount_spinlock_t;
#define read_seqcount_begin(s)		((s)->sequence)
#define read_seqcount_retry(s, seq)	((s)->sequence != (seq))

struct rcu_head {
	int unused;
};

struct xarray {
	int unused;
};

/* time and work: what is queued is done at once, what is delayed never */

extern u64 fuzz_now_ns;

#define HZ			250
#define jiffies			(fuzz_now_ns / (1000000000UL / HZ))
#define msecs_to_jiffies(ms)	((unsigned long)(ms) * HZ / 1000)
#define usecs_to_jiffies(us)	((unsigned long)(us) * HZ / 1000000)
#define time_after(a, b)	((long)((b) - (a)) < 0)
#define ktime_get()		((ktime_t)fuzz_now_ns)
#define ktime_get_boottime()	((ktime_t)fuzz_now_ns)
#define ktime_get_ns()		fuzz_now_ns
#define ktime_sub(a, b)		((a) - (b))
#define ktime_add_ns(t, n)	((ktime_t)((t) + (n)))
#define ktime_add_ms(t, n)	((ktime_t)((t) + (n) * 1000000L))
#define ktime_after(a, b)	((a) > (b))
#define ktime_before(a, b)	((a) < (b))
#define KTIME_MAX		INT64_MAX
#define ktime_to_ns(t)		((u64)(t))
#define ktime_us_delta(a, b)	(((a) - (b)) / 1000)

#define DECLARE_KFIFO_PTR(name, type)	type *name

struct work_struct {
	void (*fn)(struct work_struct *work);
};

struct delayed_work {
	struct work_struct work;
};

struct workqueue_struct {
	int unused;
};

#define WQ_UNBOUND	0
#define WQ_MEM_RECLAIM	0
#define WQ_HIGHPRI	0
#define alloc_workqueue(...)		calloc(1, sizeof(struct workqueue_struct))
#define destroy_workqueue(q)		free(q)
#define to_delayed_work(w)		container_of(w, struct delayed_work, work)
#define INIT_WORK(w, f)			((w)->fn = (f))
#define INIT_DELAYED_WORK(w, f)		((w)->work.fn = (f))
#define queue_work(q, w)		((w)->fn(w))
#define queue_delayed_work(q, w, t)	((void)(w), (void)(t))
#define mod_delayed_work(q, w, t)	((void)(w), (void)(t))
#define schedule_delayed_work(w, t)	((void)(w), (void)(t))
#define cancel_delayed_work_sync(w)	((void)(w))
#define cancel_work_sync(w)		((void)(w))

/* tasks */

struct task_struct {
	unsigned int flags;
};

extern struct task_struct fuzz_task;

#define current				(&fuzz_task)
#define PF_MEMALLOC			1
#define PF_MEMALLOC_NOIO		2

/* pages and files */

struct folio;

struct page {
	u8 bytes[PAGE_SIZE];
	struct folio *folio;
};

struct folio {
	struct page page;
	unsigned long index;
	int refs;
	bool locked, uptodate;
	void *private;
};

struct inode {
	unsigned long i_ino;
};

struct super_block;
struct file;
struct readahead_control;

struct address_space {
	struct inode *host;
	const struct address_space_operations *a_ops;
};

struct address_space_operations {
	int (*read_folio)(struct file *file, struct folio *folio);
};

#define folio_test_large(f)	((void)(f), false)
#define folio_nr_pages(f)	((void)(f), 1)
#define folio_page(f, n)	((void)(n), &(f)->page)
#define page_folio(p)		((p)->folio)
#define page_address(p)		((void *)(p)->bytes)
#define alloc_page(gfp)		((struct page *)calloc(1, sizeof(struct page)))
#define __free_page(p)		free(p)

void folio_put(struct folio *folio);
void folio_unlock(struct folio *folio);
void folio_mark_uptodate(struct folio *folio);

/* sockets: a string of bytes that ends */

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len, bv_offset;
};

struct kvec {
	void *iov_base;
	size_t iov_len;
};

struct iov_iter {
	const struct kvec *kvec;
	const struct bio_vec *bvec;
	size_t done, count;
};

#define ITER_DEST	0
#define ITER_SOURCE	1

static inline void iov_iter_kvec(struct iov_iter *iter, int direction, const struct kvec *vec, size_t n, size_t count)
{
	(void)direction;
	(void)n;
	*iter = (struct iov_iter) { .kvec = vec, .count = count };
}

static inline void iov_iter_bvec(struct iov_iter *iter, int direction, const struct bio_vec *vec, size_t n,
				 size_t count)
{
	(void)direction;
	(void)n;
	*iter = (struct iov_iter) { .bvec = vec, .count = count };
}

static inline size_t iov_iter_count(const struct iov_iter *iter)
{
	return iter->count;
}

struct tide_wire {
	const u8 *input;
	size_t left;
};



/* what the fuzzed code never gets to: connections and threads are the fuzzers' own */

#define IS_ERR(p)				(!(p))
#define PTR_ERR(p)				((void)(p), -ENOMEM)
#define ERR_PTR(e)				((void)(e), NULL)
#define strscpy(to, from, size)			((void)strncpy(to, from, size))
#define init_net				0
#define sock_create_kern(net, f, t, p, s)	((void)(s), -ENOTCONN)
#define sock_release(s)				((void)(s))
#define kernel_connect(s, a, n, f)		((void)(a), (void)(n), -ENOTCONN)
#define kthread_create(f, a, ...)		((void)(f), (struct task_struct *)NULL)
#define get_task_struct(t)			(t)
#define put_task_struct(t)			((void)(t))
#define num_possible_cpus()			3U
#define num_online_cpus()			3U
#define raw_smp_processor_id()			0U
#define kthread_stop(t)				((void)(t))
#define kthread_should_stop()			true
#define wake_up_process(t)			((void)(t))
#define wake_up(w)				((void)(w))
#define set_user_nice(t, n)			((void)(t))
#define wait_event_interruptible_timeout(w, c, t)	((void)(w), (void)(c), (void)(t))
#define get_random_u64()			4ULL
#define memzero_explicit(p, n)			memset(p, 0, n)

static inline const void *memchr_inv(const void *start, int c, size_t bytes)
{
	for (const u8 *byte = start; bytes; byte++, bytes--)
		if (*byte != (u8)c)
			return byte;
	return NULL;
}

#endif /* FUZZ_KERNEL_H */
