/* SPDX-License-Identifier: Apache-2.0 */
/* In which databases values are away. */
#ifndef TIDEPOOL_REDIS_DATABASES_H
#define TIDEPOOL_REDIS_DATABASES_H

#include "api.h"

int databases_begin(RedisModuleCtx *ctx);
int databases_count(void);
void databases_note(int database);
void databases_note_all(void);
void databases_seen(void);
int databases_next(RedisModuleCtx *ctx, int database);

#define FIRST_DATABASE	(-1)	/* before any, for databases_next() */

#endif /* TIDEPOOL_REDIS_DATABASES_H */
