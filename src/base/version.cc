// SPDX-License-Identifier: Apache-2.0
#include "kvern/version.h"

namespace kvern {

std::string_view version() {
    return KVERN_VERSION;
}  // from the file VERSION, by the build

}  // namespace kvern
