/* A process that does what a sanitizer must report, in a forked child, where Frostline's workers
 * live: run_sanitized.sh runs it first, so that a check that sees nothing cannot pass.
 * usage: sanitizer_control race|leak */
#include "device/system/sanitizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int shared_count;

static void *count_without_lock(void *argument)
{
    for (int i = 0; i < 1000; i++) {
        *(volatile int *)&shared_count += 1;
    }
    return argument;
}

static int race(void)
{
    pthread_t one, two;
    if (pthread_create(&one, NULL, count_without_lock, NULL) != 0 ||
        pthread_create(&two, NULL, count_without_lock, NULL) != 0) {
        return 1;
    }
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    return 0;
}

static int leak(void)
{
    char *volatile lost = malloc(1234);
    lost = NULL;
    return lost == NULL ? 0 : 1;
}

int main(int n, char **arguments)
{
    const char *what = n == 2 ? arguments[1] : "";
    if (strcmp(what, "race") != 0 && strcmp(what, "leak") != 0) {
        fprintf(stderr, "usage: sanitizer_control race|leak\n");
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        int status = strcmp(what, "race") == 0 ? race() : leak();
        fl_sanitizer_find_leaks();
        _exit(status);
    }
    int status = 0;
    return child < 0 || waitpid(child, &status, 0) != child ? 1 : 0;
}
