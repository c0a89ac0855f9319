#include "launcher/run/plan/host_options.h"

bool fl_host_options_find(const fl_preparation *p, fl_run_again_hosts *out)
{
    const fl_hosts *hosts = p->hosts;
    *out = (fl_run_again_hosts){.file = "", .key = "", .listen = ""};
    if (hosts == NULL || hosts->meeting[0] != '\0') {
        return false;
    }
    bool by_ssh = hosts->by_ssh || p->starters != NULL; /* also once the run has gone back */
    out->file = p->cluster_file == NULL ? "" : p->cluster_file->path;
    out->key = hosts->key_path;
    out->ssh = by_ssh && out->file[0] != '\0';
    out->listen = hosts->listen[0] != '\0' ? hosts->listen : by_ssh ? "" : hosts->agents;
    return true;
}

const char *fl_host_options(const fl_preparation *p, char text[FL_HOST_OPTIONS_BYTES])
{
    fl_run_again_hosts hosts;
    (void)fl_host_options_find(p, &hosts);
    return fl_run_again_options(&hosts, text, FL_HOST_OPTIONS_BYTES);
}
