// SPDX-License-Identifier: GPL-2.0-only
/* 6.11, "block: move the stable_writes flag to queue_limits" */
#include <linux/blkdev.h>

void probe(struct queue_limits *limits, struct request_queue *queue)
{
#ifdef TIDE_NEWER
	limits->features |= BLK_FEAT_STABLE_WRITES;
#else
	blk_queue_flag_set(QUEUE_FLAG_STABLE_WRITES, queue);
#endif
}
