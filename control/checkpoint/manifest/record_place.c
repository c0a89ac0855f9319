#include "control/checkpoint/manifest/record_place.h"

fl_runfiles_place fl_checkpoint_place(const fl_checkpoint *checkpoint)
{
    return (fl_runfiles_place){.step = checkpoint->step,
                               .steps_bytes = checkpoint->records.steps_bytes,
                               .events_bytes = checkpoint->records.events_bytes,
                               .elapsed_s = (double)checkpoint->controller.elapsed_us * 1e-6};
}
