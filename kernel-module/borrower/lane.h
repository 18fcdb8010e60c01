/* SPDX-License-Identifier: GPL-2.0-only */
/* One connection of a session on which pages are asked for: lane.c. */
#ifndef TIDE_LANE_H
#define TIDE_LANE_H

#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "transport/frames.h"
#include "uapi/wire.h"

struct page;
struct task_struct;
struct tide_lender;
struct tide_wire;

/**
 * struct tide_link - a connection to a lender
 * @wire: it comes and goes under tx_mutex and lender->wire_mutex
 * @seal: keys, there when the handshake is over: sending under @tx_mutex (PUT: the
 *	sender's), receiving by its one thread
 * @tx_mutex: one sender at a time
 */
struct tide_link {
	struct tide_wire *wire;
	struct tide_sealers seal;
	struct mutex tx_mutex;	/* one sender at a time */
};

/**
 * struct tide_lane - one connection on which pages are asked for
 * @lender: whose
 * @number: in lender->lane; the first is the GET channel, which alone carries what
 *	is no request and no reply to one
 * @link: the connection
 * @task: receives, on lanes beyond the first, where lender->main does; holds a reference
 * @rx_until: when the frame that comes now, or the next one, must be there
 * @rx_item: metadata of the frame being received
 * @scratch: takes pages nobody waits for
 * @accepting: requests may be queued
 * @stalled: a get was late here and nothing came since
 * @load: pages in the requests of the two lists
 * @pending_lock: guards @accepting, @load, @next_id and the lists
 * @unsent: requests that no frame names yet
 * @pending: requests on the wire, oldest first
 * @next_id: of the latest request
 * @deadline: ends those that are late
 * @tx_buffer: frames being sent; with what follows under the link's mutex
 * @tx_offset: bytes of them that have been sent
 * @tx_length: bytes of them in all
 * @tx_work: sends what the socket did not take at once
 * @ping_due: a PING is to be sent
 */
struct tide_lane {
	struct tide_lender *lender;
	unsigned int number;
	struct tide_link link;
	struct task_struct *task;
	ktime_t rx_until;
	struct tide_data_item *rx_item;
	struct page *scratch;

	bool accepting, stalled;
	unsigned int load;
	spinlock_t pending_lock;	/* the requests */
	struct list_head unsent, pending;
	u64 next_id;
	struct delayed_work deadline;

	u8 *tx_buffer;
	size_t tx_offset, tx_length;
	struct work_struct tx_work;
	bool ping_due;
};

static inline bool tide_lane_is_first(const struct tide_lane *lane)
{
	return !lane->number;
}

struct tide_lane *tide_lane_choose(struct tide_lender *lender);
void tide_lane_accept(struct tide_lane *lane);
void tide_lane_expect(struct tide_lane *lane, size_t bytes);
bool tide_lane_silent(const struct tide_lane *lane);
void tide_lane_late(struct tide_lane *lane);
void tide_lane_heard(struct tide_lane *lane);
void tide_lane_failed(struct tide_lane *lane);
int tide_lane_head(struct tide_lane *lane, struct tide_frame *frame);
int tide_lane_recv(struct tide_lane *lane, void *data, size_t size);
int tide_lane_metadata(struct tide_lane *lane, const struct tide_frame *frame, size_t size);
unsigned int tide_lanes_open(const struct tide_lender *lender);
void tide_lane_quiesce(struct tide_lane *lane);

#endif /* TIDE_LANE_H */
