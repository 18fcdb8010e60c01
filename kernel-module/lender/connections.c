// SPDX-License-Identifier: GPL-2.0-only
/*
 * The connections that borrowers have to this guest, strangers' among them, and the
 * queues of those who work for a borrower: who serves it, tells it, ends its session.
 */
#include <linux/slab.h>

#include "base/identity.h"
#include "lender/borrowers.h"
#include "lender/connections.h"
#include "transport/frames.h"
#include "transport/tcp.h"

DECLARE_WAIT_QUEUE_HEAD(tide_connections_wait);
struct workqueue_struct *tide_get_queue;
struct workqueue_struct *tide_put_queue;

static LIST_HEAD(tide_connections);

/**
 * tide_queues_free() - nobody works for a connection any more
 *
 * Context: process, without any connection.
 */
void tide_queues_free(void)
{
	if (tide_get_queue)
		destroy_workqueue(tide_get_queue);
	if (tide_put_queue)
		destroy_workqueue(tide_put_queue);
	tide_get_queue = NULL;
	tide_put_queue = NULL;
}

/**
 * tide_queues_alloc() - there may be connections from now on
 *
 * Context: process.
 * Return: 0 or -ENOMEM, and then tide_queues_free() is to follow all the same.
 */
int tide_queues_alloc(void)
{
	tide_get_queue = alloc_workqueue("tidepool_serve_get", WQ_UNBOUND | WQ_HIGHPRI,
					 WQ_MAX_ACTIVE);
	tide_put_queue = alloc_workqueue("tidepool_serve_put", WQ_UNBOUND,
					 WQ_MAX_ACTIVE);
	return tide_get_queue && tide_put_queue ? 0 : -ENOMEM;
}

/**
 * tide_connection_add() - there is one more connection
 * @c: filled in
 *
 * Context: tide_lending_mutex is held.
 */
void tide_connection_add(struct tide_connection *c)
{
	list_add(&c->list, &tide_connections);
}

/**
 * tide_connection_end() - there is one connection less
 * @c: attached to no borrower; freed
 *
 * Context: process.
 */
void tide_connection_end(struct tide_connection *c)
{
	mutex_lock(&tide_lending_mutex);
	list_del(&c->list);
	mutex_unlock(&tide_lending_mutex);
	tide_wire_free(c->wire);
	tide_sealers_free(&c->sealers);
	kvfree(c);
	wake_up_all(&tide_connections_wait);
}

/**
 * tide_connections_gone() - is no connection left?
 * @borrower: that one would be bound to; not enabled any more, so that none will be.
 *	NULL: no connection of anybody
 *
 * Context: process; takes tide_lending_mutex.
 */
bool tide_connections_gone(struct tide_borrower *borrower)
{
	struct tide_connection *c;
	bool gone = true;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(c, &tide_connections, list)
		gone &= borrower && c->borrower != borrower;
	mutex_unlock(&tide_lending_mutex);
	return gone;
}

/**
 * tide_connections_await() - wait for something that comes with a connection's end
 * @over: whether it has come; may sleep, which wait_event()'s condition may not
 * @borrower: whom it is asked about
 * @timeout: jiffies, MAX_SCHEDULE_TIMEOUT for ever
 *
 * Context: process.
 */
void tide_connections_await(bool (*over)(struct tide_borrower *borrower),
			    struct tide_borrower *borrower, long timeout)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);

	add_wait_queue(&tide_connections_wait, &wait);
	while (timeout && !over(borrower))
		timeout = wait_woken(&wait, TASK_UNINTERRUPTIBLE, timeout);
	remove_wait_queue(&tide_connections_wait, &wait);
}

/**
 * tide_tell() - have tide_notify() called
 * @borrower: has a session
 * @delay: jiffies, at most; 0 is at once
 *
 * Context: any.
 */
void tide_tell(struct tide_borrower *borrower, unsigned long delay)
{
	if (delay)
		queue_delayed_work(tide_get_queue, &borrower->notify, delay);
	else
		mod_delayed_work(tide_get_queue, &borrower->notify, 0);
}

/**
 * tide_expire_in() - have a session looked at that lingers
 * @borrower: enabled
 * @ms: when
 *
 * Context: any.
 */
void tide_expire_in(struct tide_borrower *borrower, unsigned int ms)
{
	mod_delayed_work(tide_put_queue, &borrower->expire, msecs_to_jiffies(ms));
}

/**
 * tide_connections_break() - end all connections, those of strangers, too
 *
 * Context: process.
 */
void tide_connections_break(void)
{
	struct tide_connection *c;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(c, &tide_connections, list)
		tide_shut(c);
	mutex_unlock(&tide_lending_mutex);
}

/**
 * tide_borrower_part() - end the connections to whom a borrower is not any more
 * @borrower: its identity has been set
 *
 * Context: process.
 */
void tide_borrower_part(struct tide_borrower *borrower)
{
	struct tide_connection *c;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(c, &tide_connections, list)
		if (c->borrower == borrower && !tide_identity_is(&c->peer, &borrower->identity))
			tide_shut(c);
	mutex_unlock(&tide_lending_mutex);
}
