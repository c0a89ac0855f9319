/* Embeddings against index arithmetic written out, over ragged samples. Catches an id taken from
 * the neighbour's column, a position that does not begin again with each sample, rows that
 * overwrite instead of adding, gradients that depend on threads, and ids that lie beyond the table.
 */
#include "support/device/kernels.h"

enum { SAMPLES = 5, WIDTH = 37, ROWS = 11, PLACES = 7, TYPES = 2 };

static const int32_t starts[SAMPLES + 1] = {0, 3, 3, 4, 11, 13};
enum { TOKENS = 13 };

/* Two columns: token and type. */
static int32_t ids[2 * TOKENS];

typedef struct tables {
    float *token, *place, *type, *grad_token, *grad_place, *grad_type;
    fl_weight w[3];
} tables;

static tables tables_of(void)
{
    tables t = {random_floats(ROWS * WIDTH, 1, 1.0f),
                random_floats(PLACES * WIDTH, 2, 1.0f),
                random_floats(TYPES * WIDTH, 3, 1.0f),
                random_floats(ROWS * WIDTH, 4, 1.0f),
                random_floats(PLACES * WIDTH, 5, 1.0f),
                random_floats(TYPES * WIDTH, 6, 1.0f),
                {{0}}};
    t.w[0] = weight_of(t.token, ROWS, WIDTH);
    t.w[1] = weight_of(t.place, PLACES, WIDTH);
    t.w[2] = weight_of(t.type, TYPES, WIDTH);
    for (int i = 0; i < TOKENS; i++) {
        ids[2 * i] = (int32_t)(i * 7 % ROWS / 2); /* several rows of y have one id */
        ids[2 * i + 1] = i % TYPES;
    }
    return t;
}

static void tables_free(tables *t)
{
    free(t->token);
    free(t->place);
    free(t->type);
    free(t->grad_token);
    free(t->grad_place);
    free(t->grad_type);
}

static fl_embed_args args_of(tables *t, float *y)
{
    return (fl_embed_args){
        .offsets = offsets_of(starts, SAMPLES),
        .table = {{.weight = &t->w[0], .grad = t->grad_token, .ids = ids, .stride = 2},
                  {.weight = &t->w[1], .grad = t->grad_place},
                  {.weight = &t->w[2], .grad = t->grad_type, .ids = ids + 1, .stride = 2}},
        .n_tables = 3,
        .width = WIDTH,
        .y = y};
}

static int place_of(int row)
{
    int sample = 0;
    while (row >= starts[sample + 1]) {
        sample++;
    }
    return row - starts[sample];
}

static void test_embed__adds_a_row_of_each_table(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        tables t = tables_of();
        float *y = floats(TOKENS * WIDTH);
        fl_embed_args args = args_of(&t, y);
        assert_int_equal(d->ops->embed(d, NULL, &args), FL_OK);
        for (int i = 0; i < TOKENS; i++) {
            for (int c = 0; c < WIDTH; c++) {
                float want = t.token[ids[2 * i] * WIDTH + c] + t.place[place_of(i) * WIDTH + c];
                assert_true(y[i * WIDTH + c] == want + t.type[ids[2 * i + 1] * WIDTH + c]);
            }
        }
        guard_check(y, TOKENS * WIDTH);
        args.n_tables = 1;
        assert_int_equal(d->ops->embed(d, NULL, &args), FL_OK);
        same_bits("one table", y + 5 * WIDTH, t.token + ids[10] * WIDTH, WIDTH);
        free(y);
        tables_free(&t);
        fl_device_destroy(&d);
    }
}

static void add_row(double *to, const float *from)
{
    for (int c = 0; c < WIDTH; c++) {
        to[c] += (double)from[c];
    }
}

static void to_double(const float *from, double *to, int n)
{
    for (int i = 0; i < n; i++) {
        to[i] = (double)from[i];
    }
}

static void test_embed_backward__adds_to_gradients(void **state)
{
    (void)state;
    tables first = tables_of();
    float *grad_y = random_floats(TOKENS * WIDTH, 9, 1.0f);
    double *token = doubles(ROWS * WIDTH), *place = doubles(PLACES * WIDTH);
    double *type = doubles(TYPES * WIDTH);
    to_double(first.grad_token, token, ROWS * WIDTH);
    to_double(first.grad_place, place, PLACES * WIDTH);
    to_double(first.grad_type, type, TYPES * WIDTH);
    for (int i = 0; i < TOKENS; i++) {
        add_row(token + ids[2 * i] * WIDTH, grad_y + i * WIDTH);
        add_row(place + place_of(i) * WIDTH, grad_y + i * WIDTH);
        add_row(type + ids[2 * i + 1] * WIDTH, grad_y + i * WIDTH);
    }
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        fl_device *d = cpu_with(n_threads);
        tables t = tables_of();
        RUN(d, embed_backward, .forward = args_of(&t, NULL), .grad_y = grad_y);
        near_all("tokens", t.grad_token, token, ROWS * WIDTH, 1e-6, 1.0);
        near_all("places", t.grad_place, place, PLACES * WIDTH, 1e-6, 1.0);
        near_all("types", t.grad_type, type, TYPES * WIDTH, 1e-6, 1.0);
        if (n_threads == 1) {
            RUN(d, embed_backward, .forward = args_of(&first, NULL), .grad_y = grad_y);
        }
        same_bits("tokens", t.grad_token, first.grad_token, ROWS * WIDTH);
        same_bits("places", t.grad_place, first.grad_place, PLACES * WIDTH);
        same_bits("types", t.grad_type, first.grad_type, TYPES * WIDTH);
        tables_free(&t);
        fl_device_destroy(&d);
    }
    free(grad_y);
    free(token);
    free(place);
    free(type);
    tables_free(&first);
}

/* Two micro-batches in turn add up to one: no row is summed before it reaches the gradient. */
static void test_embed_backward__does_not_depend_on_the_cut(void **state)
{
    (void)state;
    fl_device *d = cpu_with(2);
    tables whole = tables_of(), parts = tables_of();
    float *grad_y = random_floats(TOKENS * WIDTH, 9, 1.0f);
    const int32_t before[] = {0, 3, 3}, behind[] = {0, 1, 8, 10};
    fl_embed_args args = args_of(&parts, NULL);
    RUN(d, embed_backward, .forward = args_of(&whole, NULL), .grad_y = grad_y);
    args.offsets = offsets_of(before, 2);
    RUN(d, embed_backward, .forward = args, .grad_y = grad_y);
    args.offsets = offsets_of(behind, 3);
    args.table[0].ids += 2 * 3;
    args.table[2].ids += 2 * 3;
    RUN(d, embed_backward, .forward = args, .grad_y = grad_y + 3 * WIDTH);
    same_bits("tokens", parts.grad_token, whole.grad_token, ROWS * WIDTH);
    same_bits("places", parts.grad_place, whole.grad_place, PLACES * WIDTH);
    same_bits("types", parts.grad_type, whole.grad_type, TYPES * WIDTH);
    free(grad_y);
    tables_free(&whole);
    tables_free(&parts);
    fl_device_destroy(&d);
}

static void test_embed__refuses_ids_beyond_the_table(void **state)
{
    (void)state;
    fl_device *d = cpu_with(1);
    tables t = tables_of();
    float *y = floats(TOKENS * WIDTH);
    fl_embed_args args = args_of(&t, y);
    ids[2 * 5] = ROWS;
    assert_int_equal(d->ops->embed(d, NULL, &args), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "fl_embed: table 0: id 11 of row 1 in sample 3 of the "
                                     "micro-batch, allowed is 0 to 10");
    ids[2 * 5] = -1;
    assert_int_equal(d->ops->embed(d, NULL, &args), FL_EINVAL);
    ids[2 * 5] = 0;
    t.w[1].rows = 6; /* sample 3 has 7 rows */
    assert_int_equal(d->ops->embed(d, NULL, &args), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "fl_embed: table 1: id 6 of row 6 in sample 3 of the "
                                     "micro-batch, allowed is 0 to 5");
    free(y);
    tables_free(&t);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed__adds_a_row_of_each_table),
        cmocka_unit_test(test_embed_backward__adds_to_gradients),
        cmocka_unit_test(test_embed_backward__does_not_depend_on_the_cut),
        cmocka_unit_test(test_embed__refuses_ids_beyond_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
