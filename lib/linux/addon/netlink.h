// One request and its answer over a netlink socket made in another network namespace.
#pragma once

#include <linux/netlink.h>

#include <functional>

#include "common.h"

namespace weft {

// A netlink socket in the namespace, with a receive time limit; -1 with errno set.
int openNetlink(napi_env env, int netnsFd, int protocol);

// Sends `header` and calls `onMessage` for each message of the answer, to the end of the dump or, for a request
// without NLM_F_DUMP, for the first one. 0 or an errno.
int askNetlink(int fd, const nlmsghdr* header, const std::function<void(const nlmsghdr*)>& onMessage);

}  // namespace weft
