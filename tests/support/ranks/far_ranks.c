#include "support/ranks/far_ranks.h"

#include "device/system/clock.h"
#include "pipe/cost/plan.h"
#include "support/data/toy.h"
#include "support/ranks/messages.h"

#include <fcntl.h>
#include <unistd.h>

void far_rank_open(const rank_env *env, const char *folder, saved_run *run, far_rank *s)
{
    *s = (far_rank){.env = env, .folder_fd = open(folder, O_RDONLY | O_DIRECTORY), .run = run};
    RANK_OK(fl_toy_model(FAR_BLOCKS, 0.0f, &s->model));
    RANK_OK(fl_device_cpu_create(1, NULL, (size_t)1 << 30, &s->cpu));
    RANK_OK(fl_checkpoint_store_open(s->folder_fd, "checkpoints", &s->store));
    s->truth = (saved_truth){.model = s->model, .version = 1};
    s->source = saved_truth_source(&s->truth);
    fl_plan plan = saved_plan(s->model, 0, 2, 1, 2);
    saved_run_open(run, s->model, s->cpu, &s->store, &plan, -1, 0, &s->source);
    s->messages = rank_messages(env, FAR_PATIENCE_MS, FAR_PATIENCE_MS);
    s->far =
        (fl_checkpoint_far){.n_head = 1, .messages = s->messages, .deadline_ms = FAR_PATIENCE_MS};
    s->state = (fl_checkpoint_state){.plan = &run->plan,
                                     .params = &run->worker[env->rank].params,
                                     .parked = &run->worker[env->rank].parked,
                                     .far = &s->far};
}

void far_rank_close(far_rank *s)
{
    saved_run_close(s->run);
    fl_message_close(&s->messages);
    fl_checkpoint_store_close(&s->store);
    fl_device_destroy(&s->cpu);
    fl_model_destroy(&s->model);
    close(s->folder_fd);
}

fl_status far_rank_meet(const far_rank *s)
{
    unsigned char mine = (unsigned char)s->env->rank, all[2];
    return fl_message_all_gather(s->messages, FAR_GENERATION, &mine, 1, all,
                                 fl_deadline_us(FAR_PATIENCE_MS));
}
