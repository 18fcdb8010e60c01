/* SPDX-License-Identifier: GPL-2.0-only */
/* What became of a page, as tracepoints show it. */
#ifndef TIDE_OUTCOME_H
#define TIDE_OUTCOME_H

/* How a read of a page that is in the pool ended, */
enum tide_got {
	TIDE_GOT_HIT,		/* it came from the lender */
	TIDE_GOT_BUFFER,	/* from a buffer on its way out */
	TIDE_GOT_MISS,		/* the lender had dropped it: read from disk */
	TIDE_GOT_LATE,		/* not there by the deadline: read from disk */
	TIDE_GOT_ERROR,		/* connection lost: read from disk */
	TIDE_GOT_CORRUPT,	/* not what was put: read from disk */
	TIDE_GOT_INCOMPLETE,	/* it came, but not its whole folio: read from disk */
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
	TIDE_DROP_HELD,
};

#endif /* TIDE_OUTCOME_H */
