/* Tells ThreadSanitizer how OpenMP orders threads. libgomp is not instrumented, so the sanitizer
 * would take a kernel's threads for unordered and report every result as a race. This definition of
 * GOMP_parallel, which gcc calls for `#pragma omp parallel`, stands before libgomp's:
 *
 *     caller   release begin   GOMP_parallel of libgomp            acquire end
 *     thread                   acquire begin   body   release end
 *
 * Races between the threads of one body remain visible. No other build contains this. */
#ifdef __SANITIZE_THREAD__

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

typedef void fl_gomp_parallel(void (*body)(void *), void *data, unsigned n_threads, unsigned flags);

typedef struct team {
    void (*body)(void *);
    void *data;
    char begin, end; /* their addresses stand for the two orderings */
} team;

fl_gomp_parallel GOMP_parallel;

static void run_body(void *argument)
{
    team *t = argument;
    __tsan_acquire(&t->begin);
    t->body(t->data);
    __tsan_release(&t->end);
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned n_threads, unsigned flags)
{
    fl_gomp_parallel *of_libgomp = (fl_gomp_parallel *)dlsym(RTLD_NEXT, "GOMP_parallel");
    team t = {.body = body, .data = data};
    __tsan_release(&t.begin);
    of_libgomp(run_body, &t, n_threads, flags);
    __tsan_acquire(&t.end);
}

#endif
