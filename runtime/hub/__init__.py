"""Models of the Hugging Face Hub: pulled into the standard cache, found there, removed again.

Questions go through `huggingface_hub`: its session, its form of a listing, its way from a file's
name to where the contents are. What it leaves open is on top (looked at in
version 2.4.0), and is the point here:

* it never compares what it wrote with the SHA-256 that the Hub gives; it compares sizes only;
* it deletes the part of a file that it has when it is interrupted;
* a server that sends a byte now and then keeps it waiting for ever;
* the question what a repository holds follows redirects anywhere.

So the contents are read from its session into a part of ours, which the next pull goes on with, and
which moves into the cache when its hash is right. The cache has the layout of the package
(`cache.py` shows it), and its locks: what either tool pulls the other one finds. It is imported to
pull only: finding a model in the cache is part of every start. What is lost is the Xet protocol: a
file comes over one plain HTTPS connection, and the Hub serves files over 50 GB in parts only.
"""
