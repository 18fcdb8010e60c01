// SPDX-License-Identifier: GPL-2.0-only
/*
 * This guest's key pair, drawn when the module is loaded and forgotten when it
 * is unloaded, and the text by which guests are known to those who pair them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ctype.h>
#include <linux/string.h>

#include "base/compat.h"
#include "base/identity.h"
#include "base/primitives.h"

struct tide_keypair tide_own;

int tide_identity_init(void)
{
	return tide_keypair_draw(&tide_own);
}

void tide_identity_exit(void)
{
	memzero_explicit(&tide_own, sizeof(tide_own));
}

void tide_identity_own(struct tide_identity *identity)
{
	memcpy(identity->point, tide_own.point, sizeof(identity->point));
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
static const char *tide_point_refused(const u8 *point)
{
	u8 shared[TIDE_POINT_SIZE];
	int err;

	if (!memchr_inv(point, 0, TIDE_POINT_SIZE))
		return "is zero, which is nobody's";
	if (!tide_point_is_canonical(point))
		return "is no point of the curve";
	if (!memcmp(point, tide_own.point, TIDE_POINT_SIZE))
		return "is this guest's own";
	err = tide_agree(shared, tide_own.secret, point);
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
	refused = tide_point_refused(point);
	if (!refused)
		memcpy(identity->point, point, sizeof(point));
	return refused;
}
