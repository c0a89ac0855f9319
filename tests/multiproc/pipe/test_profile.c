/* The profile: numbers that can be, and children that crash, exit, fail or hang. */
#include "pipe/measure/profile.h"

#include "device/machine/sockets.h"
#include "nn/exec.h"
#include "support/data/toy.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PLENTY_MS = 60000, BEYOND_MS = 600000 /* the test is killed before */ };

static const fl_device_survey processors = {.kind = FL_DEVICE_CPU};
static fl_nccl_trial no_nccl;

typedef struct rig {
    fl_dataset dataset;
    fl_job job;
    fl_profile *profile;
} rig;

static void rig_init(rig *r, int64_t n_workers)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(fl_toy_dataset(64, &r->dataset), FL_OK);
    r->job.train.batch = 32;
    r->job.train.lr = 1e-3;
    r->job.train.beta1 = 0.9;
    r->job.train.beta2 = 0.999;
    r->job.train.epsilon = 1e-8;
    r->job.devices.count = n_workers;
    r->job.devices.cores = 1;
    r->job.devices.memory_bytes = (int64_t)1 << 30;
    r->job.autodp.bucket_bytes = 4 << 20;
    r->profile = calloc(1, sizeof *r->profile);
    assert_non_null(r->profile);
}

static void rig_fini(rig *r)
{
    fl_dataset_destroy(&r->dataset);
    free(r->profile);
}

static void assert_no_children(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void check_numbers(const fl_model *model, const rig *r)
{
    const fl_profile *p = r->profile;
    assert_int_equal(p->n_layers, fl_model_n_layers(model));
    assert_true(p->in_bytes > 0);
    assert_true(p->loss_call_us + p->loss_us > 0.0 && p->optimizer_us_per_param > 0.0);
    assert_true(p->peak_flops_per_us > 0.0);
    assert_true(p->link_us > 0.0 && p->link_bytes_per_us > 0.0 && p->reduce_bytes_per_us > 0.0);
    int64_t n_params = 0;
    for (int i = 0; i < p->n_layers; i++) {
        const fl_layer_cost *c = &p->layer[i];
        assert_true(c->fwd_call_us >= 0.0 && c->fwd_us > 0.0);
        assert_true(c->bwd_call_us >= 0.0 && c->bwd_us > 0.0);
        assert_true(c->out_bytes > 0 && c->kept_bytes >= c->out_bytes && c->scratch_bytes >= 0);
        n_params += c->n_params;
    }
    assert_int_equal(n_params, fl_model_n_params(model));
}

static void measure_toy(int64_t n_workers)
{
    rig r;
    fl_model *model = NULL;
    rig_init(&r, n_workers);
    assert_int_equal(fl_toy_model(4, 0.1f, &model), FL_OK);
    fl_status status = fl_profile_measure(model, &r.dataset, &r.job, &processors, 0, &no_nccl,
                                          PLENTY_MS, r.profile);
    if (status != FL_OK) {
        print_message("%s\n", fl_errmsg());
    }
    assert_int_equal(status, FL_OK);
    check_numbers(model, &r);
    /* Layers that are alike were measured once: attention of block 2 and 3, and their MLPs. */
    assert_memory_equal(&r.profile->layer[3], &r.profile->layer[5], sizeof(fl_layer_cost));
    assert_memory_equal(&r.profile->layer[4], &r.profile->layer[6], sizeof(fl_layer_cost));
    assert_true(memcmp(&r.profile->layer[3], &r.profile->layer[4], sizeof(fl_layer_cost)) != 0);
    /* Block 4 goes on with one token a sample. */
    assert_true(memcmp(&r.profile->layer[6], &r.profile->layer[8], sizeof(fl_layer_cost)) != 0);
    assert_no_children();
    fl_model_destroy(&model);
    rig_fini(&r);
}

static void test_profile__measures_one_worker(void **state)
{
    (void)state;
    measure_toy(1);
}

/* Also where both have to share one processor. */
static void test_profile__measures_links_between_two_workers(void **state)
{
    (void)state;
    measure_toy(2);
}

/* Two workers on processors of one socket, the third one in another: made up, since all are
 * measured on the processors that this machine has. Would catch: one class of link for both, a
 * child that measures elsewhere than its worker will run, and, with one socket, a class too many.
 */
static void test_profile__measures_links_between_sockets(void **state)
{
    (void)state;
    static fl_device_survey seats = {
        .kind = FL_DEVICE_CPU, .n_seats = 3, .seat_cores = 1, .seat_socket = {4, 4, 7}};
    int cpu[FL_SURVEY_PROCESSORS_MAX], n = fl_processors_list(cpu);
    rig r;
    fl_model *model = NULL;
    rig_init(&r, 3);
    assert_int_equal(fl_toy_model(4, 0.1f, &model), FL_OK);
    for (int i = 0; i < 3; i++) {
        seats.seat_cpu[i] = cpu[i % n];
    }
    assert_int_equal(
        fl_profile_measure(model, &r.dataset, &r.job, &seats, 0, &no_nccl, PLENTY_MS, r.profile),
        FL_OK);
    check_numbers(model, &r);
    assert_true(r.profile->far_us > 0.0 && r.profile->far_bytes_per_us > 0.0);
    assert_true(r.profile->far_reduce_bytes_per_us > 0.0);
    assert_true(r.profile->far_us != r.profile->link_us);
    seats.seat_socket[2] = 4;
    assert_int_equal(
        fl_profile_measure(model, &r.dataset, &r.job, &seats, 0, &no_nccl, PLENTY_MS, r.profile),
        FL_OK);
    assert_true(r.profile->far_us == 0.0 && r.profile->far_bytes_per_us == 0.0);
    assert_no_children();
    fl_model_destroy(&model);
    rig_fini(&r);
}

/* ---- a layer that misbehaves when it runs for real ---- */

typedef enum misdeed { KILLED, EXITS, FAILS, HANGS, STOPS, INTERRUPTS } misdeed;

static fl_status copies(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    if (strcmp(x->device->ops->kind, "null") != 0) {
        memcpy(out->data, in->data, (size_t)(in->n_tokens * in->width) * sizeof(float));
    }
    return FL_OK;
}

static fl_status misbehaves(void *self, fl_exec *x, const fl_tensor *grad_out, fl_tensor *grad_in)
{
    (void)grad_out, (void)grad_in;
    if (strcmp(x->device->ops->kind, "null") == 0) {
        return FL_OK; /* the dry run goes well: the trouble is in the real one */
    }
    switch (*(misdeed *)self) {
    case KILLED:
        raise(SIGKILL);
        break;
    case EXITS:
        _exit(7);
    case FAILS:
        return fl_fail(FL_EINVAL, "no gradient today");
    case STOPS:
        raise(SIGSTOP);
        break;
    case INTERRUPTS:
        kill(getppid(), SIGTERM);
        /* fall through */
    case HANGS:
        for (;;) {
            pause();
        }
    }
    return FL_OK;
}

static const fl_layer_ops bad_layer = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                       .kind = "bad",
                                       .shape = fl_toy_same_shape,
                                       .params = fl_toy_no_params,
                                       .forward = copies,
                                       .backward = misbehaves};

/* message: what the failure's begins with. */
static void check_misdeed(misdeed what, int64_t timeout_ms, fl_status expected, const char *message)
{
    rig r;
    fl_model *model = NULL;
    fl_layer classifier;
    fl_loss loss;
    rig_init(&r, 2);
    r.job.fault.detect_ms = r.job.fault.deadline_ms = 1000;
    assert_int_equal(fl_model_create("bad", &model), FL_OK);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){&bad_layer, &what}), FL_OK);
    assert_int_equal(fl_layer_classifier(14 * 14, 4, &classifier), FL_OK);
    assert_int_equal(fl_model_add(model, FL_BLOCK_HEAD, classifier), FL_OK);
    assert_int_equal(fl_loss_cross_entropy(4, &loss), FL_OK);
    assert_int_equal(fl_model_set_loss(model, loss), FL_OK);
    assert_int_equal(fl_profile_measure(model, &r.dataset, &r.job, &processors, 0, &no_nccl,
                                        timeout_ms, r.profile),
                     expected);
    if (strncmp(fl_errmsg(), message, strlen(message)) != 0) {
        assert_string_equal(fl_errmsg(), message);
    }
    assert_int_equal(r.profile->n_layers, 0); /* nothing half-written */
    assert_no_children();
    fl_model_destroy(&model);
    rig_fini(&r);
}

static void test_profile__reports_a_child_that_is_killed(void **state)
{
    (void)state;
    check_misdeed(KILLED, PLENTY_MS, FL_EFAILED,
                  "profile: the process that measured layer 0 (bad) was killed by signal 9 "
                  "(Killed)");
}

/* Would catch: a stopped child that is noticed when the time for measuring is over. */
static void test_profile__reports_a_child_that_is_stopped(void **state)
{
    (void)state;
    check_misdeed(STOPS, BEYOND_MS, FL_EFAILED,
                  "profile: the process that measured layer 0 (bad) was stopped (SIGSTOP or the "
                  "like) and did not go on within 1 s (fault.detect)");
}

static volatile sig_atomic_t n_terminated;

static void count_sigterm(int number)
{
    (void)number;
    n_terminated++;
}

/* Would catch: a SIGTERM that is taken for Ctrl-C, or that the caller does not hear of. */
static void test_profile__ends_when_the_caller_is_terminated(void **state)
{
    (void)state;
    signal(SIGTERM, count_sigterm);
    check_misdeed(INTERRUPTS, PLENTY_MS, FL_ESTOPPED, "stopped by SIGTERM while costs were");
    signal(SIGTERM, SIG_DFL);
    assert_int_equal(n_terminated, 1);
}

static void test_profile__reports_a_child_that_exits(void **state)
{
    (void)state;
    check_misdeed(EXITS, PLENTY_MS, FL_EFAILED,
                  "profile: the process that measured layer 0 (bad) ended with exit code 7");
}

static void test_profile__reports_a_layer_that_fails(void **state)
{
    (void)state;
    check_misdeed(FAILS, PLENTY_MS, FL_EFAILED, "profile: layer 0 (bad): no gradient today");
}

static void test_profile__ends_a_child_that_hangs(void **state)
{
    (void)state;
    /* Where it was then depends on how busy the machine is. */
    check_misdeed(HANGS, 2000, FL_EDEADLINE, "profile: still measuring ");
}

/* Would catch: a layer that loops and is waited for until the time for the whole profile is over.
 */
static void test_profile__gives_one_call_fault_deadline(void **state)
{
    (void)state;
    check_misdeed(HANGS, BEYOND_MS, FL_EDEADLINE,
                  "profile: layer 0 (bad): a call did not return within 5 s (fault.deadline, at "
                  "least 5 s) when its time was measured");
}

/* ---- NCCL, without which a run can do ---- */

typedef struct nccl_case {
    const char *options; /* of the stand-in, in both children */
    bool wants_nccl;     /* autodp.transport is nccl */
    const char *reason;  /* a part of it; NULL: nothing goes wrong */
} nccl_case;

static const nccl_case nccl_cases[] = {
    {"", true, NULL},
    {"fail=CommInitRankConfig:1:3", false, "ncclCommInitRankConfig: internal error"},
    {"fail=Send:1:6", false, ": the first operation: remote process exited"},
    {"fail=AllReduce:3:1", false, "bucket 3 of stage 0: ncclAllReduce: unhandled cuda error"},
    {"error=Recv:3:6,stall=Send:9", false, "asynchronous error: remote process exited"},
    {"stall=CommInitRankConfig:1,stall=CommInitRankConfig:2,stall=CommInitRankConfig:3", false,
     "ncclCommInitRankConfig has not ended in time"},
    {"stall=Send:5", false, "has not ended on the device in time"},
    {"hang=GetUniqueId:1", false, " in time"},
    {"hang=AllReduce:2,hang=AllReduce:3", false, " in time"},
    {"crash=CommInitRankConfig:2", false, "its process was killed by signal 4 ("},
    {"crash=Send:9", false, "its process was killed by signal 4 ("},
    {"fail=AllReduce:3:1", true, "found nccl, but NCCL failed when the link between two workers"},
};

static void measure_over_nccl(const nccl_case *c)
{
    enum { LIMIT_MS = 8000 }; /* a quarter of it for each wait for NCCL */
    static const fl_device_survey device = {.kind = FL_DEVICE_ASYNC_TEST};
    bool waits = strncmp(c->options, "stall", 5) == 0 || strncmp(c->options, "hang", 4) == 0;
    rig r;
    fl_model *model = NULL;
    fl_nccl_trial nccl = {.version = 22809};
    rig_init(&r, 2);
    r.job.devices.kind = FL_DEVICE_ASYNC_TEST;
    r.job.autodp.transport = c->wants_nccl ? FL_TRANSPORT_NCCL : FL_TRANSPORT_AUTO;
    assert_int_equal(setenv("FROSTLINE_NCCL_STANDIN", c->options, 1), 0);
    assert_int_equal(fl_toy_model(1, 0.1f, &model), FL_OK);
    fl_status status = fl_profile_measure(model, &r.dataset, &r.job, &device, 0, &nccl,
                                          waits ? LIMIT_MS : PLENTY_MS, r.profile);
    bool fails = c->wants_nccl && c->reason != NULL;
    const char *found = fails ? fl_errmsg() : nccl.reason;
    if (status != (fails ? FL_ENOTSUP : FL_OK) ||
        (c->reason == NULL ? found[0] != '\0' : strstr(found, c->reason) == NULL) ||
        fl_nccl_is_usable(&nccl) != (c->reason == NULL)) {
        fail_msg("'%s': %s, '%s', '%s'", c->options, fl_status_text(status), found, fl_errmsg());
    }
    if (status == FL_OK) {
        check_numbers(model, &r);
    }
    assert_no_children();
    fl_model_destroy(&model);
    rig_fini(&r);
}

/* Would catch: a run that ends, or that waits a minute, because a library fails that it can do
 * without. */
static void test_profile__does_without_nccl_that_fails(void **state)
{
    (void)state;
    assert_int_equal(setenv("FROSTLINE_NCCL", FL_BINARY_DIR "/tests/nccl_standin.so", 1), 0);
    for (size_t i = 0; i < sizeof nccl_cases / sizeof *nccl_cases; i++) {
        measure_over_nccl(&nccl_cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile__measures_one_worker),
        cmocka_unit_test(test_profile__measures_links_between_two_workers),
        cmocka_unit_test(test_profile__measures_links_between_sockets),
        cmocka_unit_test(test_profile__reports_a_child_that_is_killed),
        cmocka_unit_test(test_profile__reports_a_child_that_is_stopped),
        cmocka_unit_test(test_profile__ends_when_the_caller_is_terminated),
        cmocka_unit_test(test_profile__reports_a_child_that_exits),
        cmocka_unit_test(test_profile__reports_a_layer_that_fails),
        cmocka_unit_test(test_profile__ends_a_child_that_hangs),
        cmocka_unit_test(test_profile__gives_one_call_fault_deadline),
        cmocka_unit_test(test_profile__does_without_nccl_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
