/* The names of a checkpoint's files, what they hold, and that each is written by one worker. */
#include "pipe/state/checkpoint/checkpoint_files.h"

#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/state/checkpoint/checkpoint_store.h"
#include "support/data/toy.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 4, MOMENTS = 2 };

static fl_model *model;

static int set_up(void **state)
{
    (void)state;
    return fl_toy_model(BLOCKS, 0.0f, &model) == FL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_model_destroy(&model);
    return 0;
}

static void test_checkpoint_files__names_a_step_one_way(void **state)
{
    (void)state;
    static const int64_t steps[] = {0, 500, 999999999, 1000000000, INT64_MAX};
    static const char *const others[] = {"step-500",
                                         "step-0000000500",
                                         "step-00000050x",
                                         "step--00000500",
                                         "step-000000500.old",
                                         "step-99999999999999999999",
                                         "steps000000500",
                                         "",
                                         "step-9999999999999999999"};
    char name[FL_CHECKPOINT_NAME_MAX];
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(fl_checkpoint_folder_step(fl_checkpoint_folder_name(steps[i], name)),
                         steps[i]);
    }
    assert_string_equal(fl_checkpoint_folder_name(500, name), "step-000000500");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(fl_checkpoint_folder_step(others[i]), -1);
    }
    assert_string_equal(fl_checkpoint_file_name(FL_CHECKPOINT_WEIGHTS, 3, name),
                        "weights-003.safetensors");
    assert_string_equal(fl_checkpoint_file_name(FL_CHECKPOINT_MOMENTS, 511, name),
                        "moments-511.safetensors");
}

/* Would catch: a moment under the name of another one. */
static void test_checkpoint_files__names_each_tensor(void **state)
{
    (void)state;
    int layer = fl_model_find_layer(model, "blocks.1.attn");
    const fl_param_list *list = fl_model_params(model, layer);
    char name[FL_CHECKPOINT_TENSOR_MAX], want[FL_CHECKPOINT_TENSOR_MAX];
    for (int i = 0; i < list->n * MOMENTS; i++) {
        snprintf(want, sizeof want, "blocks.1.attn.%s.moment.%d", list->spec[i / MOMENTS].name,
                 i % MOMENTS);
        fl_checkpoint_tensor_name(model, FL_CHECKPOINT_MOMENTS, layer, MOMENTS, i, name);
        assert_string_equal(name, want);
    }
    fl_st_layout layout;
    assert_int_equal(
        fl_checkpoint_layout_init(model, FL_CHECKPOINT_MOMENTS, layer, MOMENTS, &layout), FL_OK);
    assert_int_equal(layout.n, list->n * MOMENTS);
    assert_int_equal(layout.n_elements[MOMENTS], list->spec[1].rows * list->spec[1].cols);
    assert_int_equal(fl_checkpoint_n_tensors(model, FL_CHECKPOINT_MOMENTS, layer, 0), 0);
    fl_st_layout_fini(&layout);
}

/* Would catch: a file that no worker writes, or one that is written by a worker that lacks it. */
static void test_checkpoint_files__has_one_writer_for_each(void **state)
{
    (void)state;
    int n_layers = fl_model_n_layers(model), parked[FL_MAX_LAYERS], n_by_rank[6] = {0};
    fl_plan plan = {.F = 2, .K = 2, .R = 2, .M = 1, .n_layers = n_layers, .n_workers = 6};
    const int ranks[] = {4, 0, 3, 2};
    plan.first[1] = n_layers / 2;
    plan.first[2] = n_layers;
    memcpy(plan.rank_of, ranks, sizeof ranks);
    for (int layer = 0; layer < n_layers; layer++) {
        parked[layer] = layer == 1 ? -1 : 5;
    }
    for (int layer = 0; layer < n_layers; layer++) {
        int stage = layer < n_layers / 2 ? 0 : 1;
        int owner = fl_plan_rank(&plan, layer % 2, stage);
        bool frozen = layer < fl_frozen_layers(model, 2);
        assert_int_equal(
            fl_checkpoint_writer_rank(model, &plan, parked, MOMENTS, FL_CHECKPOINT_WEIGHTS, layer),
            owner);
        assert_int_equal(
            fl_checkpoint_writer_rank(model, &plan, parked, MOMENTS, FL_CHECKPOINT_MOMENTS, layer),
            frozen ? parked[layer] : owner);
        assert_int_equal(
            fl_checkpoint_writer_rank(model, &plan, parked, 0, FL_CHECKPOINT_MOMENTS, layer), -1);
        n_by_rank[owner]++;
    }
    for (int i = 0; i < 4; i++) {
        assert_in_range(n_by_rank[ranks[i]], n_layers / 4, n_layers / 4 + 1);
    }
}

static void test_checkpoint_store__makes_its_folder_once(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE];
    fl_checkpoint_store store = {0}, again = {0}, refused;
    make_folder(folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    assert_int_equal(fl_checkpoint_store_open(fd, "checkpoints", &store), FL_OK);
    assert_int_equal(fl_checkpoint_store_open(fd, "checkpoints", &again), FL_OK);
    assert_int_equal(atomic_load(store.kept_step), -1);
    assert_int_equal(fl_checkpoint_store_open(fd, "not/there", &refused), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "not/there: No such file or directory"));
    assert_null(refused.kept_step);
    fl_checkpoint_store_close(&store);
    fl_checkpoint_store_close(&store);
    fl_checkpoint_store_close(&again);
    close(fd);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_files__names_a_step_one_way),
        cmocka_unit_test(test_checkpoint_files__names_each_tensor),
        cmocka_unit_test(test_checkpoint_files__has_one_writer_for_each),
        cmocka_unit_test(test_checkpoint_store__makes_its_folder_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
