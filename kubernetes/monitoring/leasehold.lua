-- For redis_exporter --script: returns every field of INFO leasehold, under its own name. It writes nothing and names no
-- key, so it also runs on replicas and cluster nodes.
local fields = {}
for name, value in string.gmatch(redis.call('INFO', 'leasehold'), '(leasehold_[%w_]+):(%-?%d+)') do
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
return fields
