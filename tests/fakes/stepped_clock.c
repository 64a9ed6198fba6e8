/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock of the day, ahead by the seconds in the file that the variable
 * VSWITCH_CLOCK_STEP names; see stepped_clock.py. Every other clock is that
 * of the system. The file is mapped once: no lock is held at any time, so that
 * a process may fork at any time, and a step reaches all processes at once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t no_step = 0;
static const volatile int64_t *step_seconds = &no_step;

__attribute__((constructor)) static void map_step(void)
{
    const char *path = getenv("VSWITCH_CLOCK_STEP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped;

    if (file < 0)
        return;
    mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        step_seconds = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);

    if (!result && clock == CLOCK_REALTIME)
        now->tv_sec += *step_seconds;
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    int result = syscall(SYS_gettimeofday, now, zone);

    if (!result)
        now->tv_sec += *step_seconds;
    return result;
}

time_t time(time_t *result)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
