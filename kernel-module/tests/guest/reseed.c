// SPDX-License-Identifier: GPL-2.0
/*
 * reseed - has the kernel's random numbers begin anew from what it reads.
 *
 * A guest that goes on from an image would draw what every other guest of that
 * image draws.
 */
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(void)
{
	struct {
		struct rand_pool_info info;
		char data[64];
	} seed;
	int random = open("/dev/random", O_RDWR);

	seed.info.buf_size = read(0, seed.data, sizeof(seed.data));
	seed.info.entropy_count = 8 * seed.info.buf_size;
	if (random < 0 || seed.info.buf_size <= 0 || ioctl(random, RNDADDENTROPY, &seed) ||
	    ioctl(random, RNDRESEEDCRNG)) {
		perror("reseed");
		return 1;
	}
	return 0;
}
