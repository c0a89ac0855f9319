#include "support/runs/agent_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

fl_worker_birth agent_rig_birth;

static int work(void *context, const fl_worker_birth *mine, const char *endpoint)
{
    int rank = mine->rank;
    agent_shared *s = ((agent_rig *)context)->shared;
    printf("worker %d at %s, step %d of %d\n", rank, endpoint, (int)mine->step,
           (int)mine->end_step);
    atomic_store(&s->agent, (int)getppid());
    atomic_store(&s->pid[rank], (int)getpid());
    atomic_fetch_add(&s->n_begun[rank], 1);
    while (!(atomic_load(&s->leaves) & 1 << rank)) {
        nap(1000);
    }
    return AGENT_RIG_EXIT_CODE;
}

static void note_release(void *context)
{
    atomic_fetch_add(&((agent_rig *)context)->shared->n_closed, 1);
}

int agent_rig_set_up(void **state)
{
    const fl_plan plan = {.generation = 4,
                          .K = 1,
                          .R = AGENT_RIG_WORKERS - 1,
                          .M = 1,
                          .n_layers = 2,
                          .n_workers = AGENT_RIG_WORKERS,
                          .first = {0, 2},
                          .rank_of = {0, 1}};
    agent_rig *r = calloc(1, sizeof *r);
    make_folder(r->dir);
    r->shared =
        mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fl_worker_birth_first(&plan, 40, &agent_rig_birth);
    fl_signals_block(&r->signals);
    assert_int_equal(fl_flight_create(AGENT_RIG_WORKERS, &r->flight), FL_OK);
    r->options = (fl_agent_options){.n_workers = AGENT_RIG_WORKERS,
                                    .dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY),
                                    .flight = r->flight,
                                    .signals = &r->signals,
                                    .endpoint = "nowhere",
                                    .worker = work,
                                    .context = r,
                                    .release = note_release,
                                    .release_context = r};
    fl_workers_init(r->workers, AGENT_RIG_WORKERS, &plan, 0);
    *state = r;
    return 0;
}

int agent_rig_tear_down(void **state)
{
    agent_rig *r = *state;
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    fl_signals_restore(&r->signals);
    fl_flight_destroy(&r->flight);
    close(r->options.dir_fd);
    munmap(r->shared, sizeof *r->shared);
    int failed = remove_folder(r->dir);
    free(r);
    return failed;
}

bool agent_process_is_gone(pid_t pid)
{
    (void)waitpid(pid, NULL, WNOHANG);
    return kill(pid, 0) != 0 && errno == ESRCH;
}

bool agent_rig_has_begun(const agent_shared *s)
{
    for (int i = 0; i < AGENT_RIG_WORKERS; i++) {
        if (atomic_load(&s->n_begun[i]) == 0) {
            return false;
        }
    }
    return true;
}

void agent_rig_start(agent_rig *r)
{
    assert_int_equal(fl_agent_open(&r->options, r->workers, &r->agent), FL_OK);
    assert_int_equal(fl_agent_start_all(r->agent, &agent_rig_birth), FL_OK);
    AWAIT(agent_rig_has_begun(r->shared));
}

void agent_rig_assert_gone(const agent_rig *r)
{
    for (int i = 0; i < AGENT_RIG_WORKERS; i++) {
        AWAIT(agent_process_is_gone(r->workers[i].pid));
    }
}

char *agent_rig_log(const agent_rig *r, int rank)
{
    char name[FL_AGENT_LOG_NAME_BYTES];
    char *text = calloc(1, 4096);
    int fd = openat(r->options.dir_fd, fl_agent_log_name(rank, name), O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, text, 4095) > 0);
    close(fd);
    return text;
}
