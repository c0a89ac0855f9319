/* The child writes its results to memory that both processes share, and exits. A pipe whose writing
 * end only the child holds tells the parent of that exit. */
#include "pipe/measure/dry_run.h"

#include "device/clock.h"
#include "device/failure.h"
#include "nn/model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct dry_run_results {
    volatile int layer; /* whose code runs; the number of layers: the loss */
    bool done;
    fl_failure failure; /* status FL_OK: memory is valid */
    fl_layer_memory memory[FL_MAX_LAYERS];
} dry_run_results;

typedef struct dry_runner {
    const fl_model *model;
    const fl_sample_shape *sample;
    int64_t timeout_ms;
    dry_run_results *results;
} dry_runner;

static fl_status run_layers(const dry_runner *r)
{
    dry_run_results *results = r->results;
    FL_TRY(fl_model_check_watched(r->model, &r->sample->input, &results->layer));
    return fl_memory_measure_watched(r->model, r->sample, 1, results->memory, &results->layer);
}

_Noreturn static void run_child(const dry_runner *r, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    signal(SIGINT, SIG_IGN); /* a terminal sends both to every process: the parent decides */
    signal(SIGHUP, SIG_IGN);
    fl_failure_keep(&r->results->failure, run_layers(r));
    __atomic_store_n(&r->results->done, true, __ATOMIC_RELEASE);
    _exit(0);
}

/* False: the deadline has passed, and the child still runs. */
static bool wait_for_exit(int exit_fd, int64_t deadline_us)
{
    struct pollfd closing = {.fd = exit_fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&closing, 1, (int)fl_left_ms(deadline_us));
    } while (ready < 0 && errno == EINTR);
    return ready != 0;
}

static void name_layer(const dry_runner *r, char text[FL_LAYER_TEXT_MAX])
{
    int layer = r->results->layer;
    if (layer < fl_model_n_layers(r->model)) {
        fl_model_layer_text(r->model, layer, text);
    } else {
        snprintf(text, FL_LAYER_TEXT_MAX, "loss (%s)", fl_model_loss(r->model)->ops->kind);
    }
}

static fl_status judge_exit(const dry_runner *r, bool late, int wait_status)
{
    static const char when[] = "when its shape was checked and its memory counted";
    char layer[FL_LAYER_TEXT_MAX];
    if (__atomic_load_n(&r->results->done, __ATOMIC_ACQUIRE)) {
        return fl_failure_raise(&r->results->failure);
    }
    name_layer(r, layer);
    if (late) {
        return fl_fail(FL_EDEADLINE, "%s: it did not return within %.3g s (fault.deadline) %s",
                       layer, (double)r->timeout_ms * 1e-3, when);
    }
    if (WIFSIGNALED(wait_status)) {
        int number = WTERMSIG(wait_status);
        return fl_fail(FL_EFAILED, "%s: it was killed by signal %d (%s) %s", layer, number,
                       strsignal(number), when);
    }
    return fl_fail(FL_EFAILED, "%s: it ended the process with exit code %d %s", layer,
                   WEXITSTATUS(wait_status), when);
}

static fl_status follow_child(const dry_runner *r, pid_t child, int exit_fd)
{
    int wait_status = 0;
    bool late = !wait_for_exit(exit_fd, fl_deadline_us(r->timeout_ms));
    if (late) {
        kill(child, SIGKILL);
    }
    while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR) {
    }
    return judge_exit(r, late, wait_status);
}

static fl_status fork_child(const dry_runner *r)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fl_fail(FL_EIO, "dry run: no pipe: %s", strerror(errno));
    }
    fflush(NULL); /* otherwise a layer that calls exit() writes the parent's buffered output */
    pid_t child = fork();
    if (child == 0) {
        run_child(r, parent);
    }
    close(ends[1]);
    fl_status status = child < 0 ? fl_fail(FL_EIO, "dry run: no process: %s", strerror(errno))
                                 : follow_child(r, child, ends[0]);
    close(ends[0]);
    return status;
}

fl_status fl_dry_run_check(const fl_model *model, const fl_sample_shape *sample, int64_t timeout_ms,
                           fl_layer_memory *memory)
{
    dry_runner r = {.model = model, .sample = sample, .timeout_ms = timeout_ms};
    size_t size_bytes = sizeof *r.results;
    r.results = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r.results == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "dry run: no %zu bytes to share: %s", size_bytes,
                       strerror(errno));
    }
    fl_status status = fork_child(&r);
    if (status == FL_OK) {
        memcpy(memory, r.results->memory, (size_t)fl_model_n_layers(model) * sizeof *memory);
    }
    munmap(r.results, size_bytes);
    return status;
}
