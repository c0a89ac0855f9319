/* GPT-2 on ragged samples computes the same under every plan and through transitions: the losses
 * are those of one worker, a replay repeats them to the last bit, and both copies of the tied
 * weight, in the first layer and in the last, which the loss multiplies with, end equal to the last
 * bit. Would catch: a gradient of the loss that comes after the head's was sent off, one that a
 * frozen tie still gets, a chunk that depends on the micro-batch. */
#include "nn/safetensors/safetensors.h"
#include "support/data/text.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 53, EPOCHS = 3, STEPS = 18, FIRST_FROZEN = 8, DIM = 24, ROWS = 64 };

static const double TOLERANCE = 1e-5;

static fl_status make_gpt2(fl_job *job, fl_model **model, fl_dataset *dataset)
{
    const fl_gpt2_config config = {.vocabulary = TEXT_IDS,
                                   .positions = TEXT_LONGEST,
                                   .dim = DIM,
                                   .heads = 3,
                                   .blocks = 3,
                                   .embedding_dropout = 0.1f,
                                   .attention_dropout = 0.1f,
                                   .dropout = 0.1f};
    (void)job;
    fl_model_destroy(model);
    fl_dataset_destroy(dataset);
    FL_TRY(text_dataset(N_SAMPLES, dataset));
    return fl_model_gpt2(&config, model);
}

static fl_safetensors *open_model(const scenario *s)
{
    char path[256];
    fl_safetensors *file = NULL;
    snprintf(path, sizeof path, "%s/model/model.safetensors", s->dir);
    if (fl_safetensors_open(path, &file) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return file;
}

/* After the last step; the rows beyond the vocabulary are copies, too. */
static void check_tied_copies(const scenario *s)
{
    static float copy[2][ROWS * DIM];
    static const char *const name[2] = {"embed.token", "head.fc.weight"};
    fl_safetensors *file = open_model(s);
    for (int i = 0; i < 2; i++) {
        const fl_st_tensor *tensor = fl_safetensors_find(file, name[i]);
        assert_non_null(tensor);
        assert_int_equal(fl_safetensors_read(file, tensor, 0, (int64_t)ROWS * DIM, copy[i]), FL_OK);
    }
    assert_memory_equal(copy[0], copy[1], sizeof copy[0]);
    fl_safetensors_close(&file);
}

static scenario run_of(const char *name, const char *const *plan, const fl_script_entry *script,
                       int n_script, const char *repeats)
{
    scenario s = {.name = name,
                  .sets = JOB_SETS("devices.count", "4", "train.batch", "9", "train.epochs", "3",
                                   "train.lr", "1e-3", "train.evaluate", "false", "autodp.bucket",
                                   "4KiB", "train.weight_decay", "0.1", "train.clip", "1",
                                   "train.layer_decay", "0.7"),
                  .more = plan,
                  .script = script,
                  .n_script = n_script,
                  .n_samples = N_SAMPLES,
                  .adjust = make_gpt2,
                  .repeats = repeats};
    scenario_run(&s);
    check_exactly_once(s.dir, EPOCHS, N_SAMPLES);
    check_tied_copies(&s);
    return s;
}

#define PLAN(K, R, M) JOB_SETS("pipe.k", K, "autodp.r", R, "pipe.m", M)

static void test_gpt2_plans__compute_the_same(void **state)
{
    (void)state;
    static const char *const plans[][3] = {{"2", "1", "4"}, {"1", "2", "2"}, {"2", "2", "3"}};
    scenario alone = run_of("alone", PLAN("1", "1", "1"), NULL, 0, NULL);
    double *one = losses_of(&alone, STEPS);
    assert_true(one[STEPS - 1] < one[0]);
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char name[32];
        snprintf(name, sizeof name, "plan-%zu", i);
        scenario s = run_of(name, PLAN(plans[i][0], plans[i][1], plans[i][2]), NULL, 0, NULL);
        double *other = losses_of(&s, STEPS);
        double worst = worst_difference(other, one, 0, STEPS);
        print_message("k %s r %s m %s: losses differ by at most %.2e\n", plans[i][0], plans[i][1],
                      plans[i][2], worst);
        assert_true(worst <= TOLERANCE);
        free(other);
    }
    free(one);
}

/* Through plans, a freeze and a thaw; the tied weight freezes with the first block. */
static void test_gpt2_plans__hold_through_transitions(void **state)
{
    (void)state;
    static const fl_script_entry many[] = {{.step = 4, .f = 0, .k = 2, .r = 2, .m = 2},
                                           {.step = FIRST_FROZEN, .f = 1, .k = 2, .r = 1, .m = 4},
                                           {.step = 12, .f = 2, .k = 1, .r = 2, .m = 2},
                                           {.step = 15, .f = 0, .k = 3, .r = 1, .m = 3}};
    enum { N_SCRIPT = sizeof many / sizeof *many };
    fl_script_entry alone[N_SCRIPT];
    for (int i = 0; i < N_SCRIPT; i++) {
        alone[i] = (fl_script_entry){.step = many[i].step, .f = many[i].f, .k = 1, .r = 1, .m = 1};
    }
    scenario s = run_of("many", PLAN("1", "1", "1"), many, N_SCRIPT, NULL);
    scenario one = run_of("one", PLAN("1", "1", "1"), alone, N_SCRIPT, NULL);
    double *a = losses_of(&s, STEPS), *b = losses_of(&one, STEPS);
    double worst = worst_difference(a, b, 0, STEPS);
    print_message("transitions: losses differ by at most %.2e\n", worst);
    assert_true(worst <= TOLERANCE);
    assert_int_equal(count_events(s.dir, "transition.done", ""), N_SCRIPT);
    assert_int_equal(
        count_events(s.dir, "transition.done", "\"frozen_with_ties\": [\"head.fc.weight\"]"), 2);
    scenario again = run_of("again", PLAN("1", "1", "1"), many, N_SCRIPT, s.dir);
    double *c = losses_of(&again, STEPS);
    assert_memory_equal(c, a, STEPS * sizeof *a);
    free(a);
    free(b);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_plans__compute_the_same),
        cmocka_unit_test(test_gpt2_plans__hold_through_transitions),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
