// SPDX-License-Identifier: Apache-2.0
#include "cli/exit_code.h"

#include <fmt/format.h>

#include <cstdio>

namespace kvern::cli {
namespace {

std::string_view remedy(const Op& op, const Outcome& outcome) {
    if (outcome.status == Status::miss) return "; 'kvern ls' shows what is there";
    if (outcome.status == Status::busy) return "; try again";
    if (op.condition == Condition::absent && outcome.error.code == ErrorCode::precondition) {
        return "; leave --if-absent out to replace it";
    }
    switch (outcome.error.code) {
        case ErrorCode::permission:
            return "; check the rights: file: has the owner and mode of its root, s3: the access key";
        case ErrorCode::no_space:
            return "; free space in the store or put somewhere else";
        default:
            return "";
    }
}

}  // namespace

int complain(ExitCode code, std::string_view sentence) {
    fmt::print(stderr, "kvern: {}\n", sentence);
    return code;
}

int complain(const Error& error) {
    return complain(error.code == ErrorCode::invalid_argument ? exit_usage : exit_failed, error.message);
}

int complain(const Op& op, const Outcome& outcome) {
    return complain(outcome.status == Status::miss ? exit_no_key : exit_failed,
                    explain(op, outcome) + std::string(remedy(op, outcome)));
}

}  // namespace kvern::cli
