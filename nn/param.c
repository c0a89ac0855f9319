/* Parameter lists, and the values that parameters start with. */
#include "nn/model.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

#include <math.h>
#include <string.h>

enum { FIRST_CAPACITY = 8, LANES = 4 };

/* More elements than this in one parameter are a mistake in a size, not a wish. */
static const int64_t MAX_ELEMENTS = (int64_t)1 << 40;

static fl_status check(const fl_param_list *list, const char *name, int64_t rows, int64_t cols)
{
    FL_TRY(fl__check_name("parameter", name, FL_PARAM_NAME_MAX));
    if (rows < 1 || cols < 1 || rows > MAX_ELEMENTS / cols) {
        return fl_fail(FL_EINVAL, "parameter '%s': impossible shape [%lld, %lld]", name,
                       (long long)rows, (long long)cols);
    }
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->spec[i].name, name) == 0) {
            return fl_fail(FL_EINVAL, "parameter '%s' is there twice", name);
        }
    }
    return FL_OK;
}

fl_status fl_param_list_add(fl_param_list *list, const char *name, int64_t rows, int64_t cols,
                            fl_init init, float scale, bool decay)
{
    FL_TRY(check(list, name, rows, cols));
    if (list->n == list->capacity) {
        int capacity = list->capacity == 0 ? FIRST_CAPACITY : 2 * list->capacity;
        void *spec = list->spec;
        FL_TRY(fl_realloc(&spec, (size_t)list->n * sizeof *list->spec,
                          (size_t)capacity * sizeof *list->spec));
        list->spec = spec;
        list->capacity = capacity;
    }
    fl_param_spec *spec = &list->spec[list->n++];
    *spec =
        (fl_param_spec){.rows = rows, .cols = cols, .init = init, .scale = scale, .decay = decay};
    memcpy(spec->name, name, strlen(name));
    return FL_OK;
}

/* Two normal deviates of two uniform words (Box and Muller, 1958). */
static void normal_pair(const uint32_t words[2], float scale, float out[2])
{
    double u = 1.0 - (double)fl_unit(words[0]); /* in (0, 1], so that the logarithm is finite */
    double angle = 2.0 * M_PI * (double)fl_unit(words[1]);
    double radius = (double)scale * sqrt(-2.0 * log(u));
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

/* Elements 4 i .. 4 i + 3 of a parameter come from counter i. */
static void draw(const fl_param_spec *spec, const uint32_t key[2], uint64_t i, float out[LANES])
{
    uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0, 0};
    uint32_t words[LANES];
    fl_philox(counter, key, words);
    if (spec->init == FL_INIT_NORMAL) {
        normal_pair(words, spec->scale, out);
        normal_pair(words + 2, spec->scale, out + 2);
        return;
    }
    for (int lane = 0; lane < LANES; lane++) {
        out[lane] = (2.0f * fl_unit(words[lane]) - 1.0f) * spec->scale;
    }
}

void fl_param_init(const fl_param_spec *spec, uint64_t seed, int layer, int index, float *out)
{
    int64_t n = spec->rows * spec->cols;
    if (spec->init == FL_INIT_ZEROS || spec->init == FL_INIT_ONES) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = spec->init == FL_INIT_ONES ? 1.0f : 0.0f;
        }
        return;
    }
    uint64_t mixed = fl_mix64(fl_mix64(seed, (uint64_t)(uint32_t)layer), (uint64_t)(uint32_t)index);
    const uint32_t key[2] = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    for (int64_t at = 0; at < n; at += LANES) {
        float four[LANES];
        draw(spec, key, (uint64_t)at / LANES, four);
        int64_t left = n - at < LANES ? n - at : LANES;
        memcpy(out + at, four, (size_t)left * sizeof *four);
    }
}
