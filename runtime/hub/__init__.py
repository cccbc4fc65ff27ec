"""Models of the Hugging Face Hub: pulled into the standard cache, found there, removed again.

The cache has the layout of the `huggingface_hub` package (`cache.py` shows it), so what either
tool pulls the other one finds. The package itself is not used, though `tokenizers` brings it. What
was missing in it when this was written (2.4.0), and is the point here:

* it never compares what it wrote with the SHA-256 that the Hub gives; it compares sizes only;
* it deletes the part of a file that it has when it is interrupted, and warns about a full disk but
  goes on;
* a server that sends a byte now and then keeps it waiting for ever.

And `tokenizers` takes any version from 0.16 to 2, which differ in the HTTP library, in names of
unfinished files and in what they do about each of these. A GET with a Range header, which is all
that is needed, is shorter than the care for that. What is lost is the Xet protocol: a file comes
over one plain HTTPS connection, and the Hub serves files over 50 GB in parts only.
"""
