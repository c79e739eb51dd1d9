// SPDX-License-Identifier: Apache-2.0
// What a worker tells the scheduler half; its nonce is bytes out of the store.
#include "engine/geometry.h"

#include "fuzz.h"

namespace kvern::fuzz {

void check(std::string_view input) {
    const auto geometry = Geometry::from_json(input);
    if (geometry) {
        const std::string text = geometry->to_json();
        const auto again = Geometry::from_json(text);
        FUZZ_REQUIRE(again && again->to_json() == text);
        FUZZ_REQUIRE(again->nonce == geometry->nonce && again->identity == geometry->identity);
    } else {
        FUZZ_REQUIRE(!geometry.error().message.empty());
    }
    Geometry told;
    told.nonce = input;
    const auto heard = Geometry::from_json(told.to_json());
    FUZZ_REQUIRE(heard && heard->nonce.empty() == input.empty());
}

std::vector<std::string> seeds() {
    Geometry geometry;
    geometry.rank = "pp 0, tp 1";
    geometry.groups = {{{GroupKind::full, 16, 256, 0}, {0, 27, 2, 3}},
                       {{GroupKind::window, 32, 256, 128}, {0, 7, 0, 0}}};
    geometry.num_blocks = 4096;
    geometry.identity = R"({"format":1})";
    geometry.nonce = "0123456789abcdef";
    return {geometry.to_json(), Geometry{}.to_json(), "{}", "\xff\xfe", nested(100'000)};
}

}  // namespace kvern::fuzz
