// SPDX-License-Identifier: GPL-2.0-only
/* The borrowers that there are, and which of them are known: those that are enabled. */
#include "base/identity.h"
#include "lender/borrowers.h"
#include "uapi/wire.h"

DEFINE_MUTEX(tide_lending_mutex);	/* the borrowers and the connections */
LIST_HEAD(tide_borrowers);		/* the enabled ones */
LIST_HEAD(tide_borrowers_made);		/* all */

/**
 * tide_known() - the enabled borrower of an identity
 * @who: the identity
 *
 * Context: tide_lending_mutex is held.
 */
struct tide_borrower *tide_known(const struct tide_identity *who)
{
	struct tide_borrower *borrower;

	list_for_each_entry(borrower, &tide_borrowers, list)
		if (tide_identity_is(&borrower->identity, who))
			return borrower;
	return NULL;
}

/**
 * tide_welcomes() - what to say to somebody who calls himself that
 * @who: the identity
 *
 * Context: process.
 */
enum tide_answer_code tide_welcomes(const struct tide_identity *who)
{
	enum tide_answer_code code = TIDE_ANSWER_UNKNOWN;
	struct tide_borrower *borrower;

	mutex_lock(&tide_lending_mutex);
	list_for_each_entry(borrower, &tide_borrowers_made, made)
		if (borrower->identity_set && tide_identity_is(&borrower->identity, who))
			code = TIDE_ANSWER_DISABLED;
	if (tide_known(who))
		code = TIDE_WELCOME;
	mutex_unlock(&tide_lending_mutex);
	return code;
}
