#include "support/runs/run_checkpoints.h"

#include "control/checkpoint/manifest/manifest.h"
#include "device/system/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

void run_file_path(char path[512], const char *dir, const char *name)
{
    snprintf(path, 512, "%s/%s", dir, name);
}

int check_all_checkpoints(const char *dir, fl_checkpoint_folder **folders)
{
    int n = 0;
    char checkpoints[512], folder[1024];
    fl_checkpoint *c = NULL;
    run_file_path(checkpoints, dir, FL_CHECKPOINT_FOLDER);
    assert_int_equal(fl_checkpoint_list(checkpoints, folders, &n), FL_OK);
    assert_int_equal(fl_alloc(sizeof *c, (void **)&c), FL_OK);
    for (int i = 0; i < n; i++) {
        fl_safetensors *weights = NULL;
        snprintf(folder, sizeof folder, "%s/%s", checkpoints, (*folders)[i].name);
        assert_true((*folders)[i].whole);
        fl_status status = fl_checkpoint_read(folder, c);
        assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
        assert_int_equal(c->step, (*folders)[i].step);
        status = fl_checkpoint_verify(c, folder, 2);
        assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
        status = fl_safetensors_open(folder, &weights);
        assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
        fl_safetensors_close(&weights);
        fl_checkpoint_fini(c);
    }
    fl_free(c);
    return n;
}
