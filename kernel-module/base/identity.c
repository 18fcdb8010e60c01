// SPDX-License-Identifier: GPL-2.0-only
/*
 * This guest's key pair, drawn when the module is loaded, and anew when this guest is
 * found to be another one than it was; and the text by which guests are known to those
 * who pair them. The secret half leaves this kernel in no way.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ctype.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "base/compat.h"
#include "base/identity.h"
#include "base/primitives.h"

static struct tide_keypair tide_own;
static DEFINE_SPINLOCK(tide_own_lock);	/* a leaf */

/**
 * tide_identity_renew() - be somebody else from now on
 *
 * Sessions that there are go on: they are for the caller to end.
 *
 * Context: process.
 * Return: 0, or a negative errno, and the identity is what it was.
 */
int tide_identity_renew(void)
{
	struct tide_keypair drawn;
	int err = tide_keypair_draw(&drawn);

	spin_lock(&tide_own_lock);
	if (!err)
		tide_own = drawn;
	spin_unlock(&tide_own_lock);
	memzero_explicit(&drawn, sizeof(drawn));
	return err;
}

/**
 * tide_identity_keys() - this guest's key pair, as it is now
 * @own: filled; it is for the caller to wipe
 *
 * Context: process.
 */
void tide_identity_keys(struct tide_keypair *own)
{
	spin_lock(&tide_own_lock);
	*own = tide_own;
	spin_unlock(&tide_own_lock);
}

void tide_identity_exit(void)
{
	memzero_explicit(&tide_own, sizeof(tide_own));
}

void tide_identity_own(struct tide_identity *identity)
{
	struct tide_keypair own;

	tide_identity_keys(&own);
	memcpy(identity->point, own.point, sizeof(identity->point));
	memzero_explicit(&own, sizeof(own));
}

/**
 * tide_identity_print() - an identity as text
 * @identity: the identity
 * @text: TIDE_IDENTITY_TEXT bytes, with a final NUL
 */
void tide_identity_print(const struct tide_identity *identity, char *text)
{
	char *digits = text + strlen(TIDE_IDENTITY_KIND);

	memcpy(text, TIDE_IDENTITY_KIND, strlen(TIDE_IDENTITY_KIND));
	*bin2hex(digits, identity->point, sizeof(identity->point)) = 0;
}

static bool tide_digits_are_lower(const char *text)
{
	for (; *text; text++)
		if (isupper(*text))
			return false;
	return true;
}

/* A number below 2^255 - 19, as the field's elements are: each point has one text. */
static bool tide_point_is_canonical(const u8 *point)
{
	int i;

	if (point[TIDE_POINT_SIZE - 1] != 0x7f)
		return point[TIDE_POINT_SIZE - 1] < 0x7f;
	for (i = TIDE_POINT_SIZE - 2; i > 0; i--)
		if (point[i] != 0xff)
			return true;
	return point[0] < 0xed;
}

/* Why a point is nobody's identity; NULL when it may be another guest's. */
static const char *tide_point_refused(const struct tide_keypair *own, const u8 *point)
{
	u8 shared[TIDE_POINT_SIZE];
	int err;

	if (!memchr_inv(point, 0, TIDE_POINT_SIZE))
		return "is zero, which is nobody's";
	if (!tide_point_is_canonical(point))
		return "is no point of the curve";
	if (!memcmp(point, own->point, TIDE_POINT_SIZE))
		return "is this guest's own";
	err = tide_agree(shared, own->secret, point);
	memzero_explicit(shared, sizeof(shared));
	return err ? "is a point of low order, which proves nothing" : NULL;
}

/**
 * tide_identity_parse() - another guest's identity from its text
 * @text: as tide_identity_print() writes it, and space after it
 * @size: bytes of it
 * @identity: untouched when it is refused
 *
 * Return: NULL, or why it is refused.
 */
const char *tide_identity_parse(const char *text, size_t size, struct tide_identity *identity)
{
	static const char malformed[] = "must be x25519: and 64 lowercase hexadecimal digits";
	const size_t kind = strlen(TIDE_IDENTITY_KIND);
	char copy[TIDE_IDENTITY_TEXT];
	struct tide_keypair own;
	u8 point[TIDE_POINT_SIZE];
	const char *refused;

	while (size && isspace(text[size - 1]))
		size--;
	if (size != sizeof(copy) - 1)
		return malformed;
	memcpy(copy, text, size);
	copy[size] = 0;
	if (strncmp(copy, TIDE_IDENTITY_KIND, kind) || !tide_digits_are_lower(copy + kind) ||
	    hex2bin(point, copy + kind, sizeof(point)))
		return malformed;
	tide_identity_keys(&own);
	refused = tide_point_refused(&own, point);
	memzero_explicit(&own, sizeof(own));
	if (!refused)
		memcpy(identity->point, point, sizeof(point));
	return refused;
}
