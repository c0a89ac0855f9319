/* libFuzzer over the reader of checkpoints' manifests. The input is a manifest without its last
 * member: the hash, which the fuzzer would have to guess, is made here. A first byte of 0 leaves it
 * out. */
#include "control/checkpoint/manifest/manifest.h"
#include "control/checkpoint/manifest/manifest_members.h"
#include "device/system/alloc.h"
#include "pipe/cost/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { TEXT_MAX = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool good)
{
    if (!good) {
        abort();
    }
}

/* What every caller relies on, and that it can be written and read again. */
static void check(const fl_checkpoint *c, fl_checkpoint *again)
{
    char *text = NULL;
    size_t n = 0;
    expect(fl_plan_check(&c->plan) == FL_OK && c->plan.n_layers == c->model.n_layers);
    expect(c->n_files >= 1 && c->n_files <= FL_CHECKPOINT_FILES_MAX);
    for (int i = 0; i < c->n_files; i++) {
        expect(strchr(c->file[i].name, '/') == NULL && c->file[i].bytes >= 0);
    }
    expect(fl_checkpoint_end_step(c, INT64_MAX) > c->step || c->step == INT64_MAX);
    expect(fl_checkpoint_format(c, &text, &n) == FL_OK);
    expect(fl_checkpoint_parse("again", text, n, again) == FL_OK);
    fl_checkpoint_fini(again);
    fl_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fl_checkpoint checkpoint, again;
    char trailer[FL__CHECKPOINT_TRAILER_BYTES + 1];
    if (size < 1 || size > TEXT_MAX) {
        return 0;
    }
    size_t n = size - 1;
    char *text = malloc(n + sizeof trailer);
    expect(text != NULL);
    memcpy(text, data + 1, n);
    snprintf(trailer, sizeof trailer, FL__CHECKPOINT_TRAILER,
             (unsigned long long)XXH64(text, n, 0));
    memcpy(text + n, trailer, sizeof trailer);
    n += data[0] == 0 ? 0 : FL__CHECKPOINT_TRAILER_BYTES;
    if (fl_checkpoint_parse("fuzz", text, n, &checkpoint) == FL_OK) {
        check(&checkpoint, &again);
    }
    fl_checkpoint_fini(&checkpoint);
    free(text);
    return 0;
}
