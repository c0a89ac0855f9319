#include "control/elastic/recording.h"

#include "device/system/alloc.h"

int fl_recording_find(const fl_recording *recording, int64_t step)
{
    int low = 0, high = recording->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (recording->of[middle].step < step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void fl_recording_fini(fl_recording *recording)
{
    for (int i = 0; i < recording->n; i++) {
        fl_free(recording->of[i].plan);
    }
    fl_free(recording->of);
    *recording = (fl_recording){0};
}
