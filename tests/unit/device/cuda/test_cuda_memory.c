/* The memory of the CUDA device over a stand-in for the runtime: its budget, and what other
 * processes see of it. Catches a budget that is taken later, or exceeded, and exported memory that
 * is used again while another process reads it as before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device/cuda_device.h"
#include "tests/shim/standin.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the budget ---- */

static void test_cuda_device__takes_its_budget_at_once(void **state)
{
    (void)state;
    const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = 1000};
    fl_device *d = NULL;
    standin_set_memory(999);
    assert_int_equal(fl_device_cuda_create(&options, &d), FL_ENOMEM);
    assert_string_equal(fl_errmsg(), "its budget of 1.0 KiB: device cuda 0: pool_take: out of "
                                     "memory (CUDA error 2)");
    assert_int_equal(standin_outstanding(), 0);
    standin_set_memory(1000);
    assert_int_equal(fl_device_cuda_create(&options, &d), FL_OK);
    void *memory = NULL;
    assert_int_equal(fl_device_alloc(d, 1000, "weights", &memory), FL_OK); /* all of it */
    fl_device_free(d, memory, 1000);
    fl_device_destroy(&d);
    assert_int_equal(standin_outstanding(), 0);
}

static void test_cuda_device__without_a_budget_takes_what_is_asked(void **state)
{
    (void)state;
    const fl_cuda_options options = {.plugin = standin_plugin(), .budget_bytes = SIZE_MAX};
    fl_device *d = NULL;
    void *memory = NULL;
    standin_set_memory(1000);
    assert_int_equal(fl_device_cuda_create(&options, &d), FL_OK);
    assert_int_equal(fl_device_alloc(d, 1001, "weights", &memory), FL_ENOMEM);
    assert_string_equal(fl_errmsg(), "device cuda 0: pool_take: out of memory (CUDA error 2)");
    assert_int_equal(d->used_bytes, 0);
    assert_int_equal(fl_device_alloc(d, 1000, "weights", &memory), FL_OK);
    fl_device_free(d, memory, 1000);
    fl_device_destroy(&d);
}

/* A byte that is written and read back. */
static void use_memory(fl_device *d, void *memory, size_t size_bytes)
{
    char x = 'x', back = 0, first = 1;
    assert_int_equal(d->ops->copy_out(d, NULL, &first, memory, 1), FL_OK);
    assert_int_equal(first, 0); /* cleared */
    assert_int_equal(d->ops->copy_in(d, NULL, (char *)memory + size_bytes - 1, &x, 1), FL_OK);
    assert_int_equal(d->ops->copy_out(d, NULL, &back, (char *)memory + size_bytes - 1, 1), FL_OK);
    assert_int_equal(back, 'x');
}

/* A stage is prepared while another one is in use: together they exceed the budget. */
static void test_cuda_device__has_what_was_reserved_when_it_is_claimed(void **state)
{
    (void)state;
    enum { MOST = CUDA_BUDGET / 3 * 2 };
    fl_device *d = device_of(standin_plugin());
    void *old = NULL, *next = NULL, *third = NULL;
    assert_int_equal(fl_device_alloc(d, MOST, "a stage", &old), FL_OK);
    assert_int_equal(fl_device_reserve(d, MOST, &next), FL_OK);
    assert_int_equal(d->used_bytes, MOST);
    use_memory(d, next, MOST);
    assert_int_equal(fl_device_claim(d, MOST, "the next stage"), FL_EBUDGET);
    fl_device_free(d, old, MOST);
    assert_int_equal(fl_device_claim(d, MOST, "the next stage"), FL_OK);
    assert_int_equal(d->used_bytes, MOST);
    standin_set_memory(CUDA_BUDGET + MOST);                      /* all that there is */
    assert_int_equal(fl_device_reserve(d, MOST, &third), FL_OK); /* where the old one was */
    use_memory(d, third, MOST);
    void *none = NULL;
    char line[200];
    snprintf(line, sizeof line,
             "device cuda 0: no room for %d bytes: the largest hole of the budget's %d has %d, and "
             "the device has no other memory",
             MOST, CUDA_BUDGET, (CUDA_BUDGET - MOST) / 256 * 256);
    assert_int_equal(fl_device_reserve(d, MOST, &none), FL_ENOMEM);
    assert_string_equal(fl_errmsg(), line);
    fl_device_drop(d, third, MOST);
    fl_device_free(d, next, MOST);
    fl_device_destroy(&d);
    assert_int_equal(standin_outstanding(), 0);
}

/* The budget has the bytes, but in two holes. */
static void test_cuda_device__goes_beside_an_arena_in_pieces(void **state)
{
    (void)state;
    enum { QUARTER = CUDA_BUDGET / 4 };
    fl_device *d = device_of(standin_plugin());
    void *piece[4] = {NULL}, *half = NULL;
    int before = standin_outstanding();
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fl_device_alloc(d, QUARTER, "a quarter", &piece[i]), FL_OK);
    }
    assert_int_equal(standin_outstanding(), before);
    fl_device_free(d, piece[0], QUARTER);
    fl_device_free(d, piece[2], QUARTER);
    assert_int_equal(fl_device_alloc(d, 2 * QUARTER, "a half", &half), FL_OK);
    assert_int_equal(standin_outstanding(), before + 1);
    use_memory(d, half, 2 * QUARTER);
    fl_device_free(d, half, 2 * QUARTER);
    assert_int_equal(standin_outstanding(), before);
    fl_device_free(d, piece[1], QUARTER);
    fl_device_free(d, piece[3], QUARTER);
    fl_device_destroy(&d);
}

/* ---- other processes ---- */

/* In a child: the exit code is the first byte that it copies from its parent's memory, or above
 * 100. */
static int read_in_child(fl_device *d, const fl_shared_key *key, size_t size_bytes)
{
    int status = 0;
    pid_t parent = getpid(), child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fl_shared_view view;
        unsigned char byte = 0;
        if (d->ops->view_open(d, parent, key, size_bytes, &view) != FL_OK) {
            _exit(101);
        }
        fl_status copied = d->ops->copy_out(d, NULL, &byte, view.data, 1);
        d->ops->view_close(d, &view);
        _exit(copied == FL_OK && view.data == NULL ? byte : 102);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_cuda_device__exports_memory_to_other_processes(void **state)
{
    (void)state;
    fl_device *d = device_of(standin_plugin());
    void *memory = NULL, *again = NULL;
    fl_shared *shared = NULL;
    const unsigned char byte = 42;
    size_t workspace = d->workspace_bytes;
    assert_int_equal(d->ops->memory_export(d, 1000, &memory, &shared), FL_OK);
    assert_int_equal(d->used_bytes, 0);
    assert_true(d->workspace_bytes > workspace);
    assert_int_equal(d->ops->copy_in(d, NULL, memory, &byte, 1), FL_OK);
    const fl_shared_key key = fl_shared_key_of(shared);
    assert_int_equal(read_in_child(d, &key, 1000), 42);
    assert_int_equal(read_in_child(d, &key, 1001), 101); /* more than was exported */
    d->ops->memory_give(d, memory, 1000);
    fl_shared_destroy(&shared);
    assert_int_equal(read_in_child(d, &key, 1000), 101);
    /* Another process may have it open still, so it stays and is used again, cleared. */
    int outstanding = standin_outstanding();
    assert_int_equal(d->ops->memory_export(d, 2000, &again, &shared), FL_OK);
    assert_ptr_equal(again, memory);
    assert_int_equal(standin_outstanding(), outstanding);
    const fl_shared_key other = fl_shared_key_of(shared);
    assert_int_equal(read_in_child(d, &other, 2000), 0);
    d->ops->memory_give(d, again, 2000);
    fl_shared_destroy(&shared);
    fl_device_destroy(&d);
    assert_int_equal(standin_outstanding(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_device__takes_its_budget_at_once),
        cmocka_unit_test(test_cuda_device__without_a_budget_takes_what_is_asked),
        cmocka_unit_test(test_cuda_device__has_what_was_reserved_when_it_is_claimed),
        cmocka_unit_test(test_cuda_device__goes_beside_an_arena_in_pieces),
        cmocka_unit_test(test_cuda_device__exports_memory_to_other_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
