// SPDX-License-Identifier: Apache-2.0
// What the crashing writer does, step by step, and what must be in the store after each step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "store/store_fixture.h"

namespace kvern::testing {

struct ScriptStep {
    enum class Do { put, put_absent, put_same_version, remove, upload } what;
    std::string key;
    std::uint64_t version;  // of the bytes
    std::size_t size_bytes;
    bool refused = false;  // the condition does not hold: nothing may change
};

inline const std::vector<ScriptStep>& script() {
    using Do = ScriptStep::Do;
    static const std::vector<ScriptStep> steps{
        {Do::put_absent, "a", 1, 300001},  {Do::put_absent, "b/c", 2, 65536},
        {Do::put_absent, "b/d", 3, 5},     {Do::put_absent, "a", 4, 300001, true},
        {Do::put, "b/c", 5, 100000},       {Do::put_same_version, "b/d", 6, 4097},
        {Do::upload, "long/e", 7, 200000}, {Do::remove, "a", 0, 0},
        {Do::put, "a", 8, 8192},
    };
    return steps;
}

// Keys and the versions of their bytes.
using State = std::map<std::string, std::uint64_t>;

inline void apply(const ScriptStep& step, State& state) {
    if (step.refused) return;
    if (step.what == ScriptStep::Do::remove) {
        state.erase(step.key);
    } else {
        state[step.key] = step.version;
    }
}

// The version whose bytes these are, 0 if none.
inline std::uint64_t version_of(const Memory& bytes) {
    for (const auto& step : script())
        if (step.size_bytes == bytes.size_bytes() && bytes.text() == filled(step.size_bytes, step.version).text())
            return step.version;
    return 0;
}

// Does one step on a store; empty, or what went wrong.
inline std::string do_step(Store& store, const ScriptStep& step) {
    using Do = ScriptStep::Do;
    const auto bytes = filled(step.size_bytes, step.version);
    Op op = put_op(step.key, bytes, step.what == Do::put_absent ? Condition::absent : Condition::any);
    if (step.what == Do::remove) op = plain_op(OpKind::remove, step.key);
    if (step.what == Do::put_same_version) {
        op.condition = Condition::etag;
        op.etag = run(store, plain_op(OpKind::stat, step.key)).stat.etag;
    }
    if (step.what == Do::upload) {
        const auto upload = run(store, plain_op(OpKind::begin, step.key)).upload;
        const auto cut = step.size_bytes / 3 / 4096 * 4096;
        for (const auto& part : {bytes.part(0, cut), bytes.part(cut, step.size_bytes - cut)}) {
            const auto append = upload_op(OpKind::append, upload, {part});
            const auto outcome = run(store, append);
            if (outcome.status != Status::ok) return explain(append, outcome);
        }
        op = upload_op(OpKind::commit, upload);
        op.condition = Condition::absent;
    }
    const auto outcome = run(store, op);
    const bool refused = outcome.status == Status::failed && outcome.error.code == ErrorCode::precondition;
    return (step.refused ? refused : outcome.status == Status::ok) ? "" : explain(op, outcome);
}

}  // namespace kvern::testing
