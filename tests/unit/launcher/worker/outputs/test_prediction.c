/* A sample's prediction as JSON. Would catch: a shape of the line that depends on the sample and
 * not on the model; a label that is not known but written; a number that does not read back. */
#include "launcher/worker/outputs/prediction.h"

#include "nn/model.h"
#include "support/data/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WIDTH = 3, ROWS = 4 };

static const int32_t offsets[] = {0, 1, 3};
static const int64_t ids[] = {7, 9};
static float rows[ROWS * WIDTH] = {0.1f, 2.5f, -1, 1, 1, 0, 0, 0, 3};

static fl_prediction prediction_of(const fl_loss *loss, bool many_rows)
{
    static float scores[WIDTH];
    return (fl_prediction){.loss = loss, .many_rows = many_rows, .scores = scores};
}

static fl_outputs outputs_of(int64_t width, fl_tensor targets)
{
    return (fl_outputs){.split = FL_TEST,
                        .ids = ids,
                        .n_samples = 2,
                        .width = width,
                        .offsets = offsets,
                        .rows = rows,
                        .targets = targets};
}

static void check_line(fl_prediction *p, const fl_outputs *outputs, int64_t s, const char *expected)
{
    assert_int_equal(fl_prediction_write(p, outputs, s, ids[s]), FL_OK);
    if (p->line.n != strlen(expected) || memcmp(p->line.text, expected, p->line.n) != 0) {
        fail_msg("%.*s", (int)p->line.n, p->line.text);
    }
}

static void end_line(fl_prediction *p)
{
    fl_json_fini(&p->line);
}

static void test_prediction__of_classes(void **state)
{
    (void)state;
    fl_loss loss;
    int32_t labels[] = {2, 0, -1};
    assert_int_equal(fl_loss_cross_entropy(WIDTH, &loss), FL_OK);
    fl_tensor targets = {.data = labels, .offsets = offsets, .n_samples = 2, .dtype = FL_I32};
    fl_outputs outputs = outputs_of(WIDTH, targets);
    fl_prediction p = prediction_of(&loss, false);
    check_line(&p, &outputs, 0,
               "{\"id\": 7, \"label\": 2, \"prediction\": 1, \"scores\": [0.08093203, 0.89212805, "
               "0.026939932]}\n");
    labels[0] = -1; /* not known */
    assert_int_equal(fl_prediction_write(&p, &outputs, 0, 7), FL_OK);
    assert_null(memmem(p.line.text, p.line.n, "label", strlen("label")));
    end_line(&p);
    p = prediction_of(&loss, true); /* several rows; of equal ones the first is chosen */
    check_line(&p, &outputs, 1,
               "{\"id\": 9, \"label\": [0, -1], \"prediction\": [0, 2], \"scores\": [[0.4223188, "
               "0.4223188, 0.1553624], [0.0452785, 0.0452785, 0.909443]]}\n");
    end_line(&p);
    loss.ops->destroy(loss.self);
}

static void test_prediction__names_the_classes(void **state)
{
    (void)state;
    static const char *const names[] = {"2", "\"good\"", "1"};
    fl_loss loss;
    int32_t labels[] = {2, 0, -1};
    assert_int_equal(fl_loss_cross_entropy(WIDTH, &loss), FL_OK);
    fl_tensor targets = {.data = labels, .offsets = offsets, .n_samples = 2, .dtype = FL_I32};
    fl_outputs outputs = outputs_of(WIDTH, targets);
    fl_prediction p = prediction_of(&loss, false);
    p.names = names;
    p.n_names = WIDTH;
    check_line(&p, &outputs, 0,
               "{\"id\": 7, \"label\": 2, \"label_name\": \"1\", \"prediction\": 1, "
               "\"prediction_name\": \"\\\"good\\\"\", \"scores\": [0.08093203, 0.89212805, "
               "0.026939932]}\n");
    labels[0] = -1; /* not known */
    assert_int_equal(fl_prediction_write(&p, &outputs, 0, 7), FL_OK);
    assert_null(memmem(p.line.text, p.line.n, "label", strlen("label")));
    assert_non_null(memmem(p.line.text, p.line.n, "prediction_name", strlen("prediction_name")));
    end_line(&p);
    loss.ops->destroy(loss.self);
}

static void test_prediction__of_values(void **state)
{
    (void)state;
    const fl_loss loss = fl_loss_mse();
    float values[] = {0.25f, (float)NAN, 1e30f};
    fl_tensor targets = {.data = values, .offsets = offsets, .n_samples = 2, .dtype = FL_F32};
    fl_outputs outputs = outputs_of(1, targets);
    fl_prediction p = prediction_of(&loss, false);
    check_line(&p, &outputs, 0, "{\"id\": 7, \"label\": 0.25, \"prediction\": 0.1}\n");
    end_line(&p);
    p = prediction_of(&loss, true); /* also a sample of one row has lists then */
    check_line(&p, &outputs, 0, "{\"id\": 7, \"label\": [0.25], \"prediction\": [0.1]}\n");
    check_line(&p, &outputs, 1,
               "{\"id\": 9, \"label\": [null, 1e+30], \"prediction\": [2.5, -1]}\n");
    end_line(&p);
    outputs = outputs_of(WIDTH, targets);
    p = prediction_of(&loss, true);
    check_line(&p, &outputs, 1,
               "{\"id\": 9, \"label\": [null, 1e+30], \"prediction\": [[1, 1, 0], [0, 0, 3]]}\n");
    end_line(&p);
    p = prediction_of(&loss, false);
    check_line(&p, &outputs, 0, "{\"id\": 7, \"label\": 0.25, \"prediction\": [0.1, 2.5, -1]}\n");
    end_line(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prediction__of_classes),
        cmocka_unit_test(test_prediction__names_the_classes),
        cmocka_unit_test(test_prediction__of_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
