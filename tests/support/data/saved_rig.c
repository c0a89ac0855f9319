#include "support/data/saved_rig.h"

#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "support/data/toy.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 4 };

saved_rig_state saved_rig;

int saved_rig_set_up_all(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    bool good = fl_toy_model(BLOCKS, 0.0f, &saved_rig.model) == FL_OK &&
                fl_device_cpu_create(1, NULL, (size_t)1 << 30, &saved_rig.cpu) == FL_OK;
    saved_rig.first_truth = (saved_truth){.model = saved_rig.model, .version = 1};
    saved_rig.second_truth = (saved_truth){.model = saved_rig.model, .version = 2};
    saved_rig.first = saved_truth_source(&saved_rig.first_truth);
    saved_rig.second = saved_truth_source(&saved_rig.second_truth);
    return good ? 0 : -1;
}

int saved_rig_tear_down_all(void **state)
{
    (void)state;
    fl_device_destroy(&saved_rig.cpu);
    fl_model_destroy(&saved_rig.model);
    return 0;
}

int saved_rig_set_up(void **state)
{
    (void)state;
    make_folder(saved_rig.folder);
    saved_rig.folder_fd = open(saved_rig.folder, O_RDONLY | O_DIRECTORY);
    return fl_checkpoint_store_open(saved_rig.folder_fd, "checkpoints", &saved_rig.store) == FL_OK
               ? 0
               : -1;
}

int saved_rig_tear_down(void **state)
{
    (void)state;
    fl_checkpoint_store_close(&saved_rig.store);
    close(saved_rig.folder_fd);
    return remove_folder(saved_rig.folder);
}

void saved_rig_open(int F, int K, int R, int n_workers, int64_t step, const fl_state_source *from)
{
    fl_plan plan = saved_plan(saved_rig.model, F, K, R, n_workers);
    saved_run_open(&saved_rig.run, saved_rig.model, saved_rig.cpu, &saved_rig.store, &plan, 0, step,
                   from);
}

int saved_rig_n_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}
