/* What it takes to name the cache's values after a change of plan: hashing the frozen layers'
 * weights of a ViT-B (85 million parameters).
 *
 *   bench_weight_prints
 */
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/step/input/weight_prints.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 12, FROZEN = 11, TIMES = 5 };

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "%s\n", fl_errmsg());
        exit(1);
    }
}

static double hash_ms(fl_weight_prints *prints, const fl_params *p, int F, const fl_model *model)
{
    uint64_t out[FL_MAX_LAYERS];
    int64_t begun = fl_now_ns();
    must(fl_weight_prints_get(prints, p, fl_frozen_layers(model, F), 0, 1, out));
    return (double)(fl_now_ns() - begun) * 1e-6;
}

int main(void)
{
    const fl_vit_config config = {.channels = 3,
                                  .height = 224,
                                  .width = 224,
                                  .patch = 16,
                                  .dim = 768,
                                  .heads = 12,
                                  .blocks = BLOCKS,
                                  .n_classes = 1000};
    fl_model *model = NULL;
    fl_device *device = NULL;
    fl_params params;
    fl_weight_prints *prints = NULL;
    must(fl_model_vit(&config, &model));
    must(fl_device_cpu_create(1, NULL, (size_t)8 << 30, &device));
    int n = fl_frozen_layers(model, FROZEN);
    fl_drawn_state drawn = {.model = model, .seed = 1};
    const fl_state_source source = fl_drawn_source(&drawn);
    const fl_params_options o = {.device = device,
                                 .model = model,
                                 .last = n,
                                 .first_trainable = n,
                                 .n_frozen = n,
                                 .n_moments = 2,
                                 .source = &source};
    must(fl_params_init(&params, &o));
    must(fl_weight_prints_create(fl_model_n_layers(model), &prints));
    printf("%.0f MiB of frozen weights\n", (double)params.n * 4 / 1048576.0);
    printf("%-12s %-12s %-12s\n", "all, ms", "again, ms", "1 block, ms");
    for (int i = 0; i < TIMES; i++) {
        fl_weight_prints_forget(prints, 0);
        double all = hash_ms(prints, &params, FROZEN, model);
        double again = hash_ms(prints, &params, FROZEN, model);
        fl_weight_prints_forget(prints, fl_frozen_layers(model, FROZEN - 1));
        printf("%-12.3f %-12.3f %-12.3f\n", all, again, hash_ms(prints, &params, FROZEN, model));
    }
    fl_weight_prints_destroy(&prints);
    fl_params_fini(&params);
    fl_device_destroy(&device);
    fl_model_destroy(&model);
    return 0;
}
