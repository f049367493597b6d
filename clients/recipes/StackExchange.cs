static readonly IDatabase redis = ConnectionMultiplexer.Connect("127.0.0.1:6379").GetDatabase();
static readonly IDatabase queue = ConnectionMultiplexer.Connect("127.0.0.1:6379,asyncTimeout=65000")
    .GetDatabase();

static async Task<long?> Acquire(string key, string owner, long ttl, int share = 1) =>  // null: busy
    (long?)await redis.ExecuteAsync("LOCK.ACQUIRE", (RedisKey)key, owner, ttl, "SHARE", share);

static async Task<long?> Wait(string key, string owner, long ttl, int share = 1) =>
    (long?)await queue.ExecuteAsync("LOCK.ACQUIRE", (RedisKey)key, owner, ttl, "SHARE", share, "BLOCK", 60000);

static async Task<bool> Extend(string key, string owner, long ttl, long fence) =>
    (long)await redis.ExecuteAsync("LOCK.EXTEND", (RedisKey)key, owner, ttl, fence) == 1;

static async Task<bool> Release(string key, string owner, long fence) =>
    (long)await redis.ExecuteAsync("LOCK.RELEASE", (RedisKey)key, owner, fence) == 1;
