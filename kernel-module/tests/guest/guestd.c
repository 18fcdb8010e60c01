// SPDX-License-Identifier: GPL-2.0
/*
 * guestd - runs shell commands for the test bed, as process 1 of a test guest.
 *
 * It reads requests from a virtio port and answers each when its command has
 * ended; any number run at once. It allocates little, is locked into memory and
 * cannot be killed for want of it, so that it still answers when all else is
 * starved.
 *
 *   request:  magic, id, kind, command length, input length, command, input
 *   response: magic, id, wait status, output length, output
 *
 * All integers are 32 bits, little-endian. Kind RUN starts a command, kind KILL
 * sends SIGKILL to the process group of the command with that id. The first
 * response, with id 0, says that the guest is up.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAGIC		0x44495054	/* "TPID" */
#define MAX_JOBS	64

enum kind { RUN = 1, KILL = 2 };

struct request {
	uint32_t magic, id, kind, command_len, input_len;
};

struct response {
	uint32_t magic, id, status, output_len;
};

struct job {
	pid_t pid;		/* 0: slot is free */
	uint32_t id;
	int output;		/* memory file that collects stdout and stderr */
};

static struct job jobs[MAX_JOBS];
static int port;

static void die(const char *what)
{
	perror(what);
	sleep(1);
	exit(1);
}

static void read_all(void *data, size_t len)
{
	while (len) {
		ssize_t n = read(port, data, len);

		if (n > 0) {
			data = (char *)data + n;
			len -= n;
		} else if (n == 0) {
			usleep(10000);	/* nobody connected on the host */
		} else if (errno != EINTR && errno != EAGAIN) {
			die("guestd: read");
		}
	}
}

static void write_all(const void *data, size_t len)
{
	while (len) {
		ssize_t n = write(port, data, len);

		if (n > 0) {
			data = (const char *)data + n;
			len -= n;
		} else if (n < 0 && errno != EINTR && errno != EAGAIN) {
			die("guestd: write");
		}
	}
}

static void respond(uint32_t id, int status, int output)
{
	struct response head = { MAGIC, id, status, 0 };
	char chunk[16384];
	struct stat st;
	ssize_t n;

	if (output >= 0 && fstat(output, &st) == 0)
		head.output_len = st.st_size;
	write_all(&head, sizeof(head));
	for (uint32_t done = 0; done < head.output_len; done += n) {
		n = pread(output, chunk, sizeof(chunk), done);
		if (n <= 0)
			die("guestd: output");
		if ((uint32_t)n > head.output_len - done)
			n = head.output_len - done;
		write_all(chunk, n);
	}
}

static void exec_shell(const char *command, int input, int output)
{
	sigset_t none;

	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	munlockall();
	int fd = open("/proc/self/oom_score_adj", O_WRONLY);

	if (fd < 0 || write(fd, "0", 1) != 1)
		perror("guestd: oom_score_adj");
	dup2(input, 0);
	dup2(output, 1);
	dup2(output, 2);
	execl("/bin/sh", "sh", "-c", command, NULL);
	perror("guestd: /bin/sh");
	_exit(127);
}

static int input_file(const char *data, size_t len)
{
	int fd = memfd_create("input", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)
		die("guestd: input");
	return fd;
}

static struct job *free_job(void)
{
	for (int i = 0; i < MAX_JOBS; i++)
		if (!jobs[i].pid)
			return &jobs[i];
	return NULL;
}

static void start(uint32_t id, const char *command, const char *data, size_t len)
{
	struct job *job = free_job();
	int input = input_file(data, len);

	if (!job) {
		respond(id, 125 << 8, -1);
		close(input);
		return;
	}
	job->id = id;
	job->output = memfd_create("output", MFD_CLOEXEC);
	/* the two share one offset, and O_APPEND keeps children from overwriting each other */
	fcntl(job->output, F_SETFL, O_APPEND);
	job->pid = fork();
	if (job->pid == 0)
		exec_shell(command, input, job->output);
	if (job->pid < 0) {
		job->pid = 0;
		respond(id, 126 << 8, -1);
		close(job->output);
	}
	close(input);
}

static void kill_job(uint32_t id)
{
	for (int i = 0; i < MAX_JOBS; i++)
		if (jobs[i].pid && jobs[i].id == id)
			kill(-jobs[i].pid, SIGKILL);
}

static void serve(void)
{
	struct request req;

	/* a client that went away in mid-request leaves a torn one: find the next */
	do {
		read_all(&req.magic, sizeof(req.magic));
	} while (req.magic != MAGIC);
	read_all((char *)&req + sizeof(req.magic), sizeof(req) - sizeof(req.magic));

	char *command = calloc(1, req.command_len + 1);
	char *data = malloc(req.input_len + 1);

	if (!command || !data)
		die("guestd: no memory");
	read_all(command, req.command_len);
	read_all(data, req.input_len);
	if (req.kind == RUN)
		start(req.id, command, data, req.input_len);
	else if (req.kind == KILL)
		kill_job(req.id);
	free(command);
	free(data);
}

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < MAX_JOBS; i++) {
			if (jobs[i].pid != pid)
				continue;
			respond(jobs[i].id, status, jobs[i].output);
			close(jobs[i].output);
			jobs[i].pid = 0;
		}
	}
}

int main(int argc, char **argv)
{
	struct signalfd_siginfo info;
	sigset_t chld;

	if (argc != 2)
		return 2;
	port = open(argv[1], O_RDWR);
	if (port < 0)
		die(argv[1]);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		perror("guestd: mlockall");
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);

	struct pollfd fds[2] = {
		{ .fd = port, .events = POLLIN },
		{ .fd = signalfd(-1, &chld, SFD_CLOEXEC), .events = POLLIN },
	};

	respond(0, 0, -1);
	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			die("guestd: poll");
		if (fds[1].revents & POLLIN) {
			if (read(fds[1].fd, &info, sizeof(info)) < 0)
				die("guestd: signalfd");
			reap();
		}
		if (fds[0].revents & POLLIN)
			serve();
		else if (fds[0].revents & POLLHUP)
			usleep(10000);
	}
}
