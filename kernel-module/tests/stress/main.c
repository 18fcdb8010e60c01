// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>
#include <string.h>

#include "stress.h"

static const struct {
	const char *name;
	int (*run)(const char *target);
	const char *usage;
} modes[] = {
	{ "fill", mode_fill, "FILE mib=N [version=1]" },
	{ "overwrite", mode_overwrite, "FILE [version=2]" },
	{ "random", mode_random, "FILE [reads=N] [seconds=N] [threads=1] [seed=N] [version=1] [verify=1] [direct=0] [ahead=0]" },
	{ "sequential", mode_sequential, "FILE [passes=1] [version=1] [direct=0]" },
	{ "many", mode_many, "FOLDER [files=2000] [pages=8] [write=0] [version=1] [seconds=N] [threads=1] [seed=N]" },
	{ "mix", mode_mix, "FILE [mib=256] [seconds=40] [threads=6] [files=2] [seed=N] [first=0]" },
	{ "work", mode_work, "FOLDER [rounds=10]" },
	{ "race", mode_race, "FILE [change=direct|punch|truncate|clone] [seconds=10] [first=0]" },
	{ "subvolume", mode_subvolume, "FOLDER [of=SUBVOLUME]" },
	{ "exchange", mode_exchange, "FILE donor=FILE" },
	{ "blocks", mode_blocks, "FILE by=boot|extents|encoded|dedupe|defragment|balance [donor=FILE] [from=FILE]" },
	{ "journal", mode_journal, "FILE [changes=1]" },
	{ "verity", mode_verity, "FILE" },
	{ "dax", mode_dax, "FILE [set=0|1]" },
	{ "anon", mode_anon, "MIB [hold=0]" },
	{ "grow", mode_grow, "MIB [chunk=256] [seconds=20] [hold=5]" },
	{ "spare", mode_spare, "MIB [step=0] [stall_us=1000]" },
	{ "scan", mode_scan, "MIB [seconds=20] [passes=0] [seed=N]" },
	{ "sort", mode_sort, "MIB [seed=N]" },
	{ "group", mode_group, "MIB [passes=1] [seed=N]" },
	{ "device", mode_device, "DEVICE beside=DISK [mib=16] [seconds=10] [threads=4] [discard=0] [errors=0] [seed=N]" },
	{ "compare", mode_compare, "DEVICE beside=DISK [mib=16]" },
	{ "overlap", mode_overlap, "DEVICE beside=DISK [rounds=100]" },
	{ "durable", mode_durable, "DEVICE notes=DISK [at=flush|write] [seconds=10] [seed=N]" },
	{ "endured", mode_endured, "IMAGE notes=BYTE" },
	{ "values", mode_values, "POOL|- [keys=1000] [threads=4] [seconds=5] [changes=N] [most=70000] [quota=0] [seed=N]" },
	{ "repeat", mode_repeat, "POOL|- what=put|get|exists [keys=1] [size=4096] [requests=1000]" },
	{ "crowd", mode_crowd, "POOL [keys=40] [seconds=20] [most=9000] [quota=0] [spill=FILE] [seed=N]" },
	{ "value", mode_value, "POOL|- [mode=0600] [quota=0] [user=UID] [open=2] [size=N] [from=FILE] [room=1000] [key_size=N] [expire_ms=N] [fault=0] [api=N]" },
	{ "calls", mode_calls, "FOLDER|- [calls=100000] [seconds=60] [threads=4] [seed=N]" },
	{ "server", mode_server, "PORT" },
	{ "client", mode_client, "ADDRESS [port=7471] [requests=2000] [pages=1]" },
	{ "garbage", mode_garbage, "ADDRESS [port=7470] [connections=200] [seed=N]" },
	{ "half-open", mode_half_open, "ADDRESS [port=7470] [connections=50] [addresses=0] [seconds=5] [every=0]" },
	{ "resident", mode_resident, "FILE" },
};

int main(int argc, char **argv)
{
	size_t count = sizeof(modes) / sizeof(modes[0]);

	setvbuf(stdout, NULL, _IOLBF, 0);
	end_when_told();
	if (argc >= 3) {
		options_init(argv + 3);
		for (size_t i = 0; i < count; i++)
			if (!strcmp(argv[1], modes[i].name))
				return modes[i].run(argv[2]);
	}
	for (size_t i = 0; i < count; i++)
		printf("stress %s %s\n", modes[i].name, modes[i].usage);
	return 2;
}
