/* Any bytes for a file of hosts and links: no crash, no message without a place, and what is
 * accepted passes the checks that the planner relies on. */
#include "launcher/job/cluster_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_cluster(const fl_cluster_file *file)
{
    bool good = fl_cluster_check(&file->cluster) == FL_OK;
    for (int i = 0; i < file->cluster.n_hosts && good; i++) {
        good = file->name[i][0] != '\0';
    }
    if (!good) {
        fprintf(stderr, "%s\n", fl_errmsg());
        abort();
    }
}

static void check_message(const char *message)
{
    bool placed = strncmp(message, "fuzz:", 5) == 0;
    for (const unsigned char *c = (const unsigned char *)message; *c != '\0' && placed; c++) {
        placed = *c >= 0x20 && *c != 0x7F;
    }
    if (!placed) {
        fprintf(stderr, "%s\n", message);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fl_cluster_file file;
    if (fl_cluster_file_parse("fuzz", (const char *)data, size, &file) == FL_OK) {
        check_cluster(&file);
    } else {
        check_message(fl_errmsg());
    }
    return 0;
}
