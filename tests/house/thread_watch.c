/* Preloaded into the unit tests: notes which programs create threads, as an empty file of the
 * program's name in the folder FL_THREAD_WATCH. ./check compares them with FL_THREADED_TESTS, since
 * ThreadSanitizer runs only those. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static void note_program(void)
{
    char path[PATH_MAX];
    const char *folder = getenv("FL_THREAD_WATCH");
    if (folder == NULL) {
        return;
    }
    snprintf(path, sizeof path, "%s/%s", folder, program_invocation_short_name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0) {
        close(fd);
    }
}

/* Stands before the C library's function; a name of its own leaves the header's declaration alone.
 */
create_function watched_create __asm__("pthread_create");

int watched_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument)
{
    static pthread_once_t noted = PTHREAD_ONCE_INIT;
    create_function *create;
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&create, &symbol, sizeof create); /* C has no cast from an object to a function */
    pthread_once(&noted, note_program);
    return create(thread, attributes, body, argument);
}
