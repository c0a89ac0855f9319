/* A handler of SIGSEGV that knows the ranges of addresses of the devices. It may only read memory
 * that is there and call write(2), so it composes its line by hand. */
#include "device/async/touch.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <execinfo.h>
#endif

enum { RANGES_MAX = 16, CALLS_MAX = 32, LINE_BYTES = 256 };

/* handed 0: a free place */
typedef struct range {
    atomic_uintptr_t handed, bytes;
    size_t size_bytes;
    const char *what;
} range;

static range ranges[RANGES_MAX];
static int n_watched;
static struct sigaction before;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local const char *running;

typedef struct line {
    char text[LINE_BYTES];
    size_t n;
} line;

static void add_text(line *l, const char *text)
{
    for (; *text != '\0' && l->n < sizeof l->text; text++) {
        l->text[l->n++] = *text;
    }
}

static void add_address(line *l, uintptr_t address)
{
    add_text(l, "0x");
    for (int shift = (int)sizeof address * 8 - 4; shift >= 0; shift -= 4) {
        const char digit[2] = {"0123456789abcdef"[address >> shift & 15], '\0'};
        add_text(l, digit);
    }
}

static void print_calls(void)
{
#ifdef __GLIBC__
    void *calls[CALLS_MAX];
    backtrace_symbols_fd(calls, backtrace(calls, CALLS_MAX), STDERR_FILENO);
#endif
}

static void explain(const range *r, uintptr_t address, bool of_the_device)
{
    line l = {.n = 0};
    add_text(&l, "frostline: ");
    if (running == NULL) {
        add_text(&l, "the host touched ");
    } else {
        add_text(&l, running);
        add_text(&l, " touched ");
    }
    add_text(&l, r->what);
    add_text(&l, " of device async-test at ");
    add_address(&l, address);
    add_text(&l, running != NULL && of_the_device ? ", which was not allocated or was given back\n"
                                                  : "\n");
    (void)!write(STDERR_FILENO, l.text, l.n);
    print_calls();
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t address = (uintptr_t)info->si_addr;
    for (int i = 0; i < RANGES_MAX; i++) {
        uintptr_t handed = atomic_load(&ranges[i].handed), bytes = atomic_load(&ranges[i].bytes);
        if (handed == 0) {
            continue;
        }
        if (address - handed < ranges[i].size_bytes || address - bytes < ranges[i].size_bytes) {
            explain(&ranges[i], address, address - bytes < ranges[i].size_bytes);
            break;
        }
    }
    sigaction(number, &before,
              NULL); /* the instruction faults once more, with no handler of ours */
}

static void set_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
#ifdef __GLIBC__
    void *first[1];
    (void)backtrace(first, 1); /* its first call loads a library, which a handler must not */
#endif
    sigaction(SIGSEGV, &action, &before);
}

void fl__touch_watch(const fl__space *space, const char *what)
{
    pthread_mutex_lock(&lock);
    if (n_watched++ == 0) {
        set_handler();
    }
    for (int i = 0; i < RANGES_MAX; i++) {
        if (atomic_load(&ranges[i].handed) == 0) {
            ranges[i].size_bytes = space->range_bytes;
            ranges[i].what = what;
            atomic_store(&ranges[i].bytes, (uintptr_t)space->bytes);
            atomic_store(&ranges[i].handed, (uintptr_t)space->handed);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void fl__touch_unwatch(const fl__space *space)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES_MAX; i++) {
        if (atomic_load(&ranges[i].handed) == (uintptr_t)space->handed) {
            atomic_store(&ranges[i].handed, 0);
        }
    }
    if (--n_watched == 0) {
        sigaction(SIGSEGV, &before, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void fl__touch_watch_thread(void)
{
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

void fl__touch_running(const char *entry)
{
    running = entry;
}
